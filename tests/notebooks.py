"""Notebooks for tests, made as Jupyter writes them."""

from __future__ import annotations

import json

SETUP = "import torch\nmodel = torch.nn.Linear(3, 3)\ntotal = 0"
"""Set up in one cell, trained in the next: TML101 in its last row."""

TRAINING = """\
for batch in loader:
    loss = model(batch).sum()
    loss.backward()
    total += loss"""


def notebook(*cells: str | list[str] | dict[str, object], indent: int | None = 1, **metadata: object) -> str:
    """The JSON of a notebook: text and lists are code cells."""
    whole = [
        cell
        if isinstance(cell, dict)
        else {"cell_type": "code", "execution_count": 1, "id": f"c{at}", "metadata": {}, "outputs": [], "source": cell}
        for at, cell in enumerate(cells)
    ]
    content = {"cells": whole, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=indent, ensure_ascii=False) + "\n"


def rows(text: str) -> list[str]:
    """A source as Jupyter writes it."""
    return text.splitlines(keepends=True)
