"""Does a run that uses earlier results report what a run from nothing does? On real projects, after random edits, by every way in."""
