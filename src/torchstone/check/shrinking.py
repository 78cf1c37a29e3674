"""A failing program -> the same with smaller shapes, as long as it fails the same way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Description = dict[str, Any]
Sizes = dict[int, int]  # a size of the recorded shapes -> the size it has now

_NO_SIZES = ("dim", "dims", "dilation", "stride", "padding", "output_padding", "kernel_size", "output_mask", "axes")
_SINGLE_SIZES = ("end", "length", "split_size", "size", "num_classes")


def shrink(shapes: Sequence[Sequence[int]], still_fails: Callable[[Sizes], bool], *, most_runs: int) -> Sizes:
    """The smallest sizes found to fail the same way: all of them at once where that works, else one after the other."""
    every = sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)
    left = most_runs
    for target in (1, 2):
        together = {size: target for size in every if size > target}
        if left == 0 or not together:
            break
        left -= 1
        if still_fails(together):
            return together
    sizes: Sizes = {}
    for size in every:
        for target in _targets(size):
            if left == 0:
                return sizes
            left -= 1
            if still_fails({**sizes, size: target}):
                sizes[size] = target
                break
    return sizes


def smaller_program(program: Description, sizes: Mapping[int, int]) -> Description:
    """The program with the sizes among its arguments changed alike."""
    steps = [
        {**step, "kwargs": {name: _smaller(name, value, sizes) for name, value in step["kwargs"].items()}}
        for step in program["steps"]
    ]
    return {**program, "steps": steps}


def smaller_shape(shape: Sequence[int], sizes: Mapping[int, int]) -> tuple[int, ...]:
    """A shape after shrinking."""
    return tuple(sizes.get(size, size) for size in shape)


def _targets(size: int) -> Iterator[int]:
    """Few and small ones first: one, two, eight, then halves."""
    tried = [target for target in (1, 2, 8) if target < size]
    yield from tried
    half = size // 2
    if half > (tried[-1] if tried else 0):
        yield half


def _smaller(name: str, value: Any, sizes: Mapping[int, int]) -> Any:
    if type(value) is int and name in _SINGLE_SIZES:
        return sizes.get(value, value)
    if isinstance(value, dict) and name not in _NO_SIZES:
        return {
            kind: [sizes.get(item, item) if type(item) is int else item for item in items]
            if kind in ("list", "tuple")
            else items
            for kind, items in value.items()
        }
    return value
