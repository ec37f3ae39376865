"""Adds each step's loss to a running total as a number."""

import torch
from torch import nn


def train(model: nn.Module, dataloader: list[tuple[torch.Tensor, torch.Tensor]], epochs: int) -> None:
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total_loss = 0.0
        for inputs, labels in dataloader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        print(f"epoch {epoch}: mean loss {total_loss / len(dataloader):.4f}")


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    dataloader = [(torch.randn(32, 64), torch.randint(0, 10, (32,))) for _ in range(20)]
    train(model, dataloader, epochs=3)


if __name__ == "__main__":
    main()
