"""Gives answers that are made to break whoever reads them."""

huge = 10**4000
run = {
    "live_bytes": [huge * step for step in range(3)] + [True] * 100_000,
    "nodes": [-huge] * 9,
    "peak_bytes": -huge,
    "graph_bytes": 3,
    "seconds": float("nan"),
    "seen": "tensor",
    "place": "\x1b]0;owned\x07\x1b[2J",
    "errors": [[1, "\x1b[31mred\n\ud800"], [huge, "\u202egnp.exe"], ["\x1b[2J", 4], "no pair"],
}
emit({"variant": ["before"], "run": 7})
emit({"variant": "before", "run": run})
emit({"sandbox": "\x1b[31mnone", "torch": "\x1b[2J"})
emit({"snapshot": "A" * 1_000_000})
