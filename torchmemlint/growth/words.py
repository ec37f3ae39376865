"""The report in words, from the plain data that a run gives."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Growth = Mapping[str, Any]
Data = Mapping[str, Any]


def full(data: Data, joined: Mapping[int, Sequence[str]] | None = None) -> str:
    """The whole report; ``joined`` has what the linter says of each growth, by its number."""
    lines = [*_ending(data)]
    for number, growth in enumerate(data["growths"]):
        lines.append(headline(growth))
        lines += [f"    {text}" for text in details(growth)]
        lines += [f"    {text}" for text in (joined or {}).get(number, ())]
    lines += _loops(data)
    lines += _unused(data)
    return "".join(f"{line}\n" for line in lines)


def headline(growth: Growth) -> str:
    """One growth: where, how much, who keeps it."""
    loop = growth["loop"]
    at = where(growth["line"]) if growth["line"] else where(loop)
    kept = growth["words"]
    note = "note: " if growth["note"] else ""
    return f"{at}: {note}grows {size(growth['total_per_step'])} per step of the loop at {where(loop)}: {kept}"


def details(growth: Growth) -> Iterator[str]:
    """What stands below a growth."""
    if growth["callers"]:
        yield "called from " + ", ".join(where(caller) for caller in growth["callers"])
    if not growth["line"]:
        yield "the line is unknown: " + growth["no_line"]
    if growth["unknown_saved"]:
        yield f"{count(growth['unknown_saved'], 'saved tensor')} were packed by hooks: their sizes may be others"


def kept(growth: Growth) -> str:
    """Who keeps what, in one clause; the growth's ``words``."""
    holder, kind = growth["holder"], growth["kind"]
    graph = ""
    if growth["nodes_per_step"]:
        nodes, saved = count(growth["nodes_per_step"], "node"), size(growth["saved_bytes_per_step"])
        graph = f", with its graph ({nodes}, {saved} of saved tensors)"
    if kind == "cycle":
        return f"{holder}, which only the cyclic collector frees{graph}"
    if kind == "native":
        if holder:
            return f"a cycle through C++, {holder}, which `backward(create_graph=True)` makes{graph}"
        return f"no Python object holds it: C++ does{graph}"
    of = {
        "local": f" (local of `{growth['of']}`)", "global": "" if growth["of"] == "__main__" else f" (global of `{growth['of']}`)",
        "generator": f" (local of the generator `{growth['of']}`)", "frame": f" (local of `{growth['of']}`, which has ended)",
        "class": " (class attribute)", "context": " (context variable)", "stack": " (that an expression is making)", "function": " (of a function that C++ holds: a hook)", "node": "",
    }.get(growth["root"], "")  # fmt: skip
    if kind == "name" and growth["chained"]:
        return f"`{holder}`{of} is carried on with the graph of every step{graph.replace(', with its graph', '')}"
    return f"`{holder}`{of} gets {growth['gets']} in each step{graph}"


def _loops(data: Data) -> Iterator[str]:
    device = {"cpu": "the CPU", "cuda": "CUDA", "mps": "MPS"}[data["device"]]
    for loop in data["loops"]:
        measured, explained = loop["measured_per_step"], loop["explained_per_step"]
        share = f"{size(min(explained, measured) if explained < 1.5 * measured else explained)} of {size(measured)}"
        at = f" of the loop at {where(loop['place'])}" if len(data["loops"]) > 1 else ""
        yield f"Explained: {share} per step{at}, in {count(loop['iterations'], 'step')}. Measured on {device}."
        if loop["residue"]:
            yield f"    {loop['residue']}"


def _ending(data: Data) -> Iterator[str]:
    if data["off"]:
        yield "torchmemlint: the measuring failed and was switched off; the program ran on. Please report it:"
        yield from ("    " + line for line in data["off"].splitlines())
    yield from data["alive"]


def _unused(data: Data) -> Iterator[str]:
    if data["growths"] or any(loop["residue"] for loop in data["loops"]):
        return
    if data["off"]:
        return
    if not data["torch"]:
        yield "torchmemlint: the program did not import torch: nothing was measured."
    elif not data["iterations"]:
        yield "torchmemlint: no loop was seen that calls a module, a backward or a loader: nothing was measured."
    elif data["iterations"] < data["needed"]:
        yield (
            f"torchmemlint: nothing can be said: the longest loop ran {count(data['iterations'], 'step')}, "
            f"{data['needed']} are needed (at {where(data['longest'])})."
        )
    else:
        words = f"nothing grows: {count(data['iterations'], 'step')} of the loop at {where(data['longest'])} were measured"
        yield f"torchmemlint: {words}{data['bounded']}."


def where(place: Mapping[str, Any]) -> str:
    """A place, its path from the current folder."""
    path = place["path"]
    try:
        short = os.path.relpath(path)
    except (ValueError, OSError):
        short = path
    return f"{path if short.startswith('..') else short}:{place['line']}"


def size(number: float) -> str:
    """Bytes, as the issue of a memory report writes them: decimal units."""
    number = max(0.0, float(number))
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5 or unit == "GB":
            return (
                f"{number:.0f} {unit}"
                if unit == "B" or number >= 99.5
                else f"{number:.2g} {unit}"
                if number < 10
                else f"{number:.0f} {unit}"
            )
        number /= 1000
    raise AssertionError


def count(number: float, word: str) -> str:
    """A number of things."""
    shown = f"{number:,.0f}" if float(number).is_integer() or number >= 10 else f"{number:.1f}"
    return f"{shown} {word}{'' if shown == '1' else 's'}"
