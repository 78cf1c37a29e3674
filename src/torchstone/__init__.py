"""torchstone: what a PyTorch model is made of, and what it takes to bring it up on a new accelerator."""

__version__ = "0.1.0"
