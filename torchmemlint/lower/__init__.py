"""From source text to flow IR: candidate regions and their lowering. Import the modules themselves: libcst loads slowly."""
