"""Many files in several processes: what these are, what they share, and how far they are."""
