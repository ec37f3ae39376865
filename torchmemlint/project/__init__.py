"""What a project is before any of its files is read: which files, which settings, what stands around a file."""
