"""torchmemlint: finds the mistakes in PyTorch code that waste or leak GPU memory."""

__version__ = "0.1.0"
