"""Source text: files, rows and columns, and the comments that speak to torchmemlint."""

NOTEBOOK = ".ipynb"


def is_notebook(path: str) -> bool:
    """Whether a path names a Jupyter notebook."""
    return path.lower().endswith(NOTEBOOK)
