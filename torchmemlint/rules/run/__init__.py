"""Rules about a run itself, not about a place in the code: files, comments, what grew as the program ran."""
