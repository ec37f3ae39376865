"""Rules about graphs that something keeps after their step."""
