"""Accuracy on real code: the linter over published packages whose sites were labelled by hand.

The packages, their labels and the scorer are kept outside this repository; ``python -m benchmarks.field`` gets their folders as arguments.
``score.md`` is our copy of the last score.
"""
