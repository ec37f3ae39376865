class AverageMeter:
    def __init__(self):
        self.total = 0
        self.count = 0

    def update(self, value, n=1):
        self.total += value * n  # flagged: TML101 confirmed nodes per step
        self.count += n
