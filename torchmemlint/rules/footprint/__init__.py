"""Rules about what one step needs at its peak."""
