"""module + inputs -> outputs, computed by something that is not plain PyTorch.

All files but `registry` and `recorded` run in the backend's own environment: they need torch and the standard library,
nothing else of torchstone, and torch only once a method is called.
"""
