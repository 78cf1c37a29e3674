"""Tensors in one line, equal ones in a row counted: a cache of 64 tensors is one word, not a page."""

from collections.abc import Iterable
from itertools import groupby

from torchstone.record.tensor import TensorSpec

_TIMES = "\N{MULTIPLICATION SIGN}"


def show_specs(specs: Iterable[TensorSpec]) -> str:
    """The tensors in order: `float32[1, 8], 64 x float32[2]`, with a multiplication sign."""
    runs = ((text, sum(1 for _ in run)) for text, run in groupby(map(str, specs)))
    return ", ".join(text if count == 1 else f"{count} {_TIMES} {text}" for text, count in runs)
