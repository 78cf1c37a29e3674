"""Repeated layers: which siblings in a row are the same thing again."""

from torchstone.record.base import Record
from torchstone.record.module import Module
from torchstone.record.trace import Trace
from torchstone.record.unique import subtree_shapes


class Fold(Record, frozen=True, kw_only=True):
    """A run of siblings of one shape."""

    first: int  # module number of the first one
    members: tuple[int, ...]


def module_folds(trace: Trace) -> tuple[Fold, ...]:
    """The runs of two or more equal siblings whose names differ only in a number, in order of their first member."""
    shapes = subtree_shapes(trace)
    families = [_family(_name(module)) for module in trace.modules]
    open_run: dict[int, list[int]] = {}
    runs: list[list[int]] = []
    for index, module in enumerate(trace.modules):
        parent = module.parent
        run = open_run.get(parent)
        if run is not None and shapes[run[0]] == shapes[index] and _counted_on(families[run[0]], families[index]):
            run.append(index)
        else:
            open_run[parent] = [index]
            runs.append(open_run[parent])
    return tuple(Fold(first=run[0], members=tuple(run)) for run in runs if len(run) > 1)


def _name(module: Module) -> str:
    return module.path.rpartition(".")[2]


def _family(name: str) -> tuple[str, bool]:
    """A name without its digits, and whether it had any: `block3` and `block4` are of one family."""
    rest = name.rstrip("0123456789")
    return rest, rest != name


def _counted_on(first: tuple[str, bool], other: tuple[str, bool]) -> bool:
    return first == other and first[1]
