"""Sites in a trainer whose model, loader and configuration are somewhere else."""

import argparse
import os
from collections import defaultdict

import torch
import torch.nn.functional as F
import wandb
from mylib.data import build_loader
from mylib.metrics import ImportedMeter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args = parser.parse_args()


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


class Trainer:
    def __init__(self, model, criterion, config):
        assert os.path.exists(config.path)
        self.model = model.to(config.device)
        self.criterion = criterion
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.history = defaultdict(list)
        self.meter = AverageMeter()
        self.loader = build_loader(config)
        self.best = None

    def fit(self, epochs):
        imported = ImportedMeter()
        for epoch in range(epochs):
            running = 0.0
            for step, (images, target) in enumerate(self.loader):
                images, target = images.cuda(non_blocking=True), target.cuda()
                loss = self.criterion(self.model(images), target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                running += loss  # verdict: TML101 confirmed nodes per step
                self.history["loss"].append(loss)  # verdict: TML102 confirmed nodes per step
                self.meter.update(loss, images.size(0))  # verdict: TML103 confirmed nodes per step
                imported.update(loss)  # verdict: TML103 inconclusive
                self.history["exact"].append(loss.item())  # verdict: TML102 refuted
                if step % 50 == 0:
                    wandb.log({"loss": loss.item()})
                    self.history["sparse"].append(loss)  # verdict: TML102 confirmed nodes per step
        return running

    def retained(self):
        kept = []
        for images, target in self.loader:
            loss = self.criterion(self.model(images), target)
            loss.backward(retain_graph=True)
            kept.append(loss)  # verdict: TML102 confirmed whole graph per step
        return kept

    def evaluate_everything(self):
        self.model.eval()
        total, outputs = 0.0, []
        for images, target in self.loader:
            logits = self.model(images)
            total += self.criterion(logits, target)  # verdict: TML101 confirmed whole graph per step
            outputs.append(logits.cpu())  # verdict: TML204 confirmed graph per step
        return total, outputs

    @torch.no_grad()
    def evaluate_safely(self):
        total = 0.0
        for images, target in self.loader:
            total += self.criterion(self.model(images), target)  # verdict: TML101 refuted
        return total

    def predict_one(self, image):
        return self.model(image[None]).argmax(1)  # verdict: TML201 confirmed extra graph at peak

    def count_correct(self):
        correct = 0
        for images, target in self.loader:
            correct += (self.model(images).argmax(1) == target).sum()  # verdict: TML101 refuted
        return correct


def main():
    trainer = Trainer(None, F.cross_entropy, args)
    trainer.fit(3)
    trainer.retained()
    trainer.evaluate_everything()
    trainer.evaluate_safely()
    trainer.predict_one(None)
    trainer.count_correct()


if __name__ == "__main__":
    main()
