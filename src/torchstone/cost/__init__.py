"""Trace -> CostTable, by arithmetic alone."""

from torchstone.cost.price_trace import price
from torchstone.cost.registry import Price, register_price

__all__ = ["Price", "price", "register_price"]
