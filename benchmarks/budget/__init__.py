"""Fake tensors against real ones: what ``torchmemlint budget`` counts, compared with what the CPU holds."""
