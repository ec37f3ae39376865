"""Source text: files, rows and columns, and the comments that speak to torchmemlint."""
