"""How many parameters a module holds, its children's included, each distinct tensor counted once."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from torchstone.record.base import Record
from torchstone.record.trace import Trace


class Held(Record, frozen=True, kw_only=True):
    """The parameters of one subtree."""

    elements: int
    size_bytes: int  # of those whose element type is known
    unsized: int = 0  # tensors whose element type is not known


def own_parameters(trace: Trace) -> tuple[int, ...]:
    """The elements of the parameters that each module holds itself."""
    return tuple(
        sum(trace.tensors[number].spec.elements for number in {held.tensor for held in module.parameters})
        for module in trace.modules
    )


def inclusive_parameters(trace: Trace) -> tuple[Held, ...]:
    """What each module's subtree holds.

    Each tensor adds at every module that holds it and is taken off again where two of its holders meet, so that
    summing up the tree counts it once per subtree, in time linear in the number of modules.
    """
    parents = [module.parent for module in trace.modules]
    depths = depths_of(parents)
    balance = [[0, 0, 0] for _ in parents]
    for tensor, holders in _holders(trace).items():
        spec = trace.tensors[tensor].spec
        size = spec.size_bytes
        amounts = (spec.elements, size or 0, int(size is None))
        for holder in holders:
            _add(balance[holder], amounts, 1)
        for left, right in pairwise(holders):
            _add(balance[_meeting(left, right, parents, depths)], amounts, -1)
    for index in range(len(parents) - 1, 0, -1):
        _add(balance[parents[index]], tuple(balance[index]), 1)
    return tuple(Held(elements=elements, size_bytes=size, unsized=unsized) for elements, size, unsized in balance)


def depths_of(parents: Sequence[int]) -> list[int]:
    """The depth of each module, the root's is 0."""
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def _add(balance: list[int], amounts: Sequence[int], sign: int) -> None:
    for place, amount in enumerate(amounts):
        balance[place] += sign * amount


def _holders(trace: Trace) -> dict[int, list[int]]:
    """For each parameter tensor the modules that hold it, in pre-order; a shared module's other parents hold it too."""
    holders: defaultdict[int, set[int]] = defaultdict(set)
    for index, module in enumerate(trace.modules):
        for parameter in module.parameters:
            holders[parameter.tensor].add(index)
    number_of = {module.path: index for index, module in enumerate(trace.modules)}
    for index, module in enumerate(trace.modules):
        for path in module.other_paths:
            parent = number_of.get(path.rpartition(".")[0])
            if parent is not None:
                for tensor in _tensors_below(trace, index):
                    holders[tensor].add(parent)
    return {tensor: sorted(found) for tensor, found in holders.items()}


def _tensors_below(trace: Trace, index: int) -> set[int]:
    tensors: set[int] = set()
    inside = {index}
    for number in range(index, len(trace.modules)):
        if number != index and trace.modules[number].parent not in inside:
            break
        inside.add(number)
        tensors.update(parameter.tensor for parameter in trace.modules[number].parameters)
    return tensors


def _meeting(left: int, right: int, parents: Sequence[int], depths: Sequence[int]) -> int:
    while left != right:
        if depths[left] >= depths[right]:
            left = parents[left]
        else:
            right = parents[right]
    return left
