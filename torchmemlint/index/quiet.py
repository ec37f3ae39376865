"""Packages that call code of ours, and never in another grad mode than that in which they are called."""

from __future__ import annotations

import sys

_QUIET_PACKAGES = frozenset(sys.stdlib_module_names) | {
    "PIL", "absl", "attr", "celery", "cherrypy", "click", "datasets", "docutils", "fastapi", "fire", "flask", "gin", "gradio",
    "gym", "gymnasium", "h5py", "hydra", "imgaug", "jinja2", "librosa", "matplotlib", "networkx", "nltk", "numba", "numpy",
    "omegaconf", "optuna", "pandas", "pettingzoo", "pydantic", "pytest", "ray", "requests", "sacred", "scipy", "six", "sklearn",
    "starlette", "streamlit", "tokenizers", "torch", "torchaudio", "torchtext", "torchvision", "tornado", "tqdm", "typer",
    "typing_extensions", "yaml",
}  # fmt: skip


def is_quiet(name: str) -> bool:
    """Whether what bears the absolute name ``name`` comes from a package that calls code of ours without touching grad mode.

    Of torch itself that is true as well, but for what ``torch_facts`` tells.
    """
    return name.partition(".")[0] in _QUIET_PACKAGES
