"""From source text to flow IR, and what its text says by itself. Import the modules themselves: libcst loads slowly."""
