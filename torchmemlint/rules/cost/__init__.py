"""What a mistake costs: how much grows, for how long, how often, with the table that makes a severity of it."""
