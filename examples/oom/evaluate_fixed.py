"""Score a language model on held-out text; the same program as `evaluate.py`, repaired."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, vocabulary=2_000, width=256, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=1_024, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    criterion = nn.CrossEntropyLoss()
    total_loss = 0.0
    for tokens, targets in batches:
        logits = model(tokens)
        loss = criterion(logits.flatten(0, 1), targets.flatten())
        total_loss += loss.item()
    return total_loss / len(batches)


def main():
    torch.manual_seed(0)
    batches = [(torch.randint(2_000, (16, 128)), torch.randint(2_000, (16, 128))) for _ in range(40)]
    print(f"loss {float(evaluate(Model(), batches)):.4f}")


if __name__ == "__main__":
    main()
