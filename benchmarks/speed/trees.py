"""Trees to measure on: copies of real packages, and a made-up one of any size."""

from __future__ import annotations

import shutil
from pathlib import Path

MODULE = """import torch
from torch import nn

from {package}.block{before} import Block{before}, train as train_before


class Block{number}(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = Block{before}(width) if width > {number} else None
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)
        self.scale = 1.0 / (width ** 0.5)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        out = x + self.second(hidden) * self.scale
        if self.inner is not None:
            out = self.inner(out)
        return out


def train(model, loader, optimizer, epochs):
    history = []
    total = 0.0
    for epoch in range(epochs):
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch), target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        history.append(total / len(loader))
        evaluate_{number}(model, loader)
    return history


def evaluate_{number}(model: Block{number}, loader):
    scores = []
    for batch, target in loader:
        scores.append((model(batch) - target).abs().mean().item())
    return sum(scores) / len(scores)


"""
PLAIN = '''
def table_{number}_{part}(rows, width={part}):
    """Lays rows out in columns."""
    columns = [[] for _ in range(width + 1)]
    for place, row in enumerate(rows):
        key = (place * {number} + {part}) % (width + 1)
        if row is None:
            continue
        elif isinstance(row, str) and row.startswith("#"):
            columns[0].append(row.strip())
        else:
            columns[key].append({{"name": str(row), "place": place, "key": key}})
    lengths = [len(column) for column in columns]
    return [column for column in columns if column], max(lengths, default=0)
'''


def synthetic(folder: Path, lines: int) -> Path:
    """Modules of about 300 lines, a training loop each among plain functions, that use their neighbours, up to so many lines."""
    package = folder / f"made{lines}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    written = number = 0
    while written < lines:
        before = number - 1 if number % 20 else number
        text = MODULE.format(package=package.name, number=number, before=before)
        text += "".join(PLAIN.format(number=number, part=part) for part in range(16))
        (package / f"block{number}.py").write_text(text)
        written += text.count("\n")
        number += 1
    return package


def copy_of(folder: Path, to: Path) -> Path:
    """The Python files of a folder, elsewhere: nothing is written into what is measured."""
    copy = to / folder.name
    for path in sorted(folder.rglob("*.py")):
        place = copy / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    return copy


def file_to_change(folder: Path) -> Path:
    """A file of middling size that trains or runs a model: the one that a benchmark edits."""
    found = [path for path in folder.rglob("*.py") if b"def forward(" in path.read_bytes()]
    return sorted(found, key=lambda path: (path.stat().st_size, path))[len(found) // 2]
