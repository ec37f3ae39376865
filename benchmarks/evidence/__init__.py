"""Measures what every mistake costs: `python -m benchmarks.evidence --device cpu|cuda` writes a dated record that the
rule pages quote."""
