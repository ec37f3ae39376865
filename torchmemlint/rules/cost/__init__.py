"""What a mistake costs: how much grows, for how long and how often, and the table that makes a severity of it."""
