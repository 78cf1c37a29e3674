"""Entries of the formula database -> numbers, with Python's standard library alone."""

from .registry import CircularDependencyError, Registry, UnknownModuleError, compute_flops, compute_memory, registry

__all__ = [
    "CircularDependencyError",
    "Registry",
    "UnknownModuleError",
    "compute_flops",
    "compute_memory",
    "registry",
]
