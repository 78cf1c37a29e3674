"""Calls of ttnn, Tenstorrent's op library, on its mock device: accepted, refused or out of memory, never a value.

`recipes` and `environment` are on the side of the records. All other files run in the environment that has ttnn: they
need the standard library alone, and ttnn only once a function is called.
"""
