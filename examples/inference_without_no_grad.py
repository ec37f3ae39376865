"""Predicts a whole set with grad mode on: every kept output holds the graph of its forward."""

import torch
from torch import nn


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def predict(model: nn.Module, batches: list[torch.Tensor]) -> torch.Tensor:
    model.eval()
    outputs = []
    for batch in batches:
        output = model(batch)
        outputs.append(output)
    return torch.cat(outputs)


def main() -> None:
    model = build()
    batches = [torch.randn(32, 64) for _ in range(20)]
    scores = predict(model, batches)
    print(f"{len(scores)} rows predicted, graph kept: {scores.requires_grad}")


if __name__ == "__main__":
    main()
