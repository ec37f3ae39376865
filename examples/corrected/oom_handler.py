"""Lets go of the failed step first, then needs less: the batch goes through in halves."""

import torch
from torch import nn


def train_step(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        inputs = torch.randn(32, 64, device=device)
        labels = torch.randint(0, 10, (32,), device=device)
        too_large = False
        try:
            print(step, train_step(model, inputs, labels, optimizer))
        except torch.OutOfMemoryError:
            too_large = True
        if too_large:
            for part, wanted in zip(inputs.chunk(2), labels.chunk(2)):
                print(step, train_step(model, part, wanted, optimizer))


if __name__ == "__main__":
    main()
