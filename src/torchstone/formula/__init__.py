"""Module class -> what one call of it costs, as a formula."""

from torchstone.formula.database.compute import compute_flops, compute_memory

__all__ = ["compute_flops", "compute_memory"]
