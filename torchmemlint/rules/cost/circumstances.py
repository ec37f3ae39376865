"""The circumstances of a graph that decide its price, each asked only where the table wants it."""

from __future__ import annotations

from collections.abc import Callable

from torchmemlint.rules.api import Flow
from torchmemlint.rules.cost.often import why_once
from torchmemlint.rules.cost.size import (
    ON_HOST,
    are_on_host,
    forwards_among,
    networks_below,
    why_dropped_first,
    why_on_host,
    why_one_step,
    why_small,
)
from torchmemlint.rules.cost.trials import why_tried_out
from torchmemlint.semantics.roots import Fate
from torchmemlint.semantics.state import Graph

Known = dict[str, Callable[[], str]]


def of_network(event: Graph, flow: Flow) -> Known:
    """Of the graph of one forward, with those of the modules that are given what it gives, whatever becomes of it."""
    return {
        "on-host": lambda: why_on_host(event, flow),
        "small": lambda: why_small((event, *networks_below(event, flow)), flow),
        "one-step": lambda: why_one_step(event, flow),
        "dropped-first": lambda: why_dropped_first(event, flow),
    }


def of_forward(event: Graph, fate: Fate, flow: Flow) -> Known:
    """The same, and how often the program runs it, and what for."""
    return {
        **of_network(event, flow),
        "tried-out": lambda: why_tried_out(event, fate, flow),
        "once": lambda: why_once(event, flow),
    }


def why_cheap(event: Graph, flow: Flow) -> str:
    """Why the graph of a forward costs little, in words; "" where it may cost much."""
    return next((why for known in of_network(event, flow).values() if (why := known())), "")


def of_graphs(gids: frozenset[int], flow: Flow) -> Known:
    """Of all graphs that a value is attached to."""
    return {
        "on-host": lambda: ON_HOST if are_on_host(forwards_among(gids, flow), flow) else "",
        "small": lambda: why_small(forwards_among(gids, flow), flow),
    }
