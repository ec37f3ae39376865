"""A loop that skips bad batches, and keeps why."""

import torch
from torch import nn

failures = []
reasons = []
stripped = []


class BadBatch(ValueError):
    pass


def step(model: nn.Module, x: torch.Tensor, number: int) -> torch.Tensor:
    loss = model(x).square().mean()
    if number % 2:
        raise BadBatch(f"batch {number}")
    return loss


def main() -> None:
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for number in range(24):
        try:
            loss = step(model, torch.randn(64, 32), number)
        except BadBatch as error:
            failures.append(error)  # flagged: TML102 confirmed whole graph
            reasons.append(str(error))  # flagged: TML102 refuted
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for number in range(12):
        try:
            step(model, torch.randn(64, 32), 1)
        except BadBatch as error:
            stripped.append(error.with_traceback(None))  # flagged: TML102 refuted


main()
