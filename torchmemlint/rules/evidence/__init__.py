"""What speaks for and against a candidate: each module answers one subject with facts, and no verdict (`rules.scorecard` has that)."""
