"""The module tree as it is shown: one row per module in pre-order, repeated layers marked, parameters counted once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.record.unique import Fold, SpecsOfCall, module_folds, specs_of_call
from torchstone.record.value import show_value

# --- Tensors in one line; equal consecutive ones are counted, so that a cache of 64 tensors stays short ---


_TIMES = "\N{MULTIPLICATION SIGN}"


def show_specs(specs: Iterable[TensorSpec]) -> str:
    """The tensors in order: `float32[1, 8], 64 x float32[2]`, with a multiplication sign."""
    runs = ((text, sum(1 for _ in run)) for text, run in groupby(map(str, specs)))
    return ", ".join(text if count == 1 else f"{count} {_TIMES} {text}" for text, count in runs)


# --- Parameters of a module and its children, each distinct tensor counted once ---


class ParameterTotals(Record, frozen=True, kw_only=True):
    """The parameters of one subtree."""

    elements: int
    size_bytes: int  # of those whose element type is known
    unsized: int = 0  # tensors whose element type is not known


def own_parameters(trace: Trace) -> tuple[int, ...]:
    """The elements of the parameters that each module holds itself."""
    return tuple(
        sum(trace.held_spec(number).elements for number in {own.tensor for own in module.parameters})
        for module in trace.modules
    )


def inclusive_parameters(trace: Trace) -> tuple[ParameterTotals, ...]:
    """The parameters of each module's subtree.

    Each tensor adds at every module that holds it and is taken off again where two of its holders meet, so that
    summing up the tree counts it once per subtree, in time linear in the number of modules.
    """
    parents = [module.parent for module in trace.modules]
    depths = depths_of(parents)
    balance = [[0, 0, 0] for _ in parents]
    for tensor, holders in _holders(trace).items():
        spec = trace.held_spec(tensor)
        size = spec.size_bytes
        amounts = (spec.elements, size or 0, int(size is None))
        for holder in holders:
            _add(balance[holder], amounts, 1)
        for left, right in pairwise(holders):
            _add(balance[_meeting(left, right, parents, depths)], amounts, -1)
    for index in range(len(parents) - 1, 0, -1):
        _add(balance[parents[index]], tuple(balance[index]), 1)
    return tuple(
        ParameterTotals(elements=elements, size_bytes=size, unsized=unsized) for elements, size, unsized in balance
    )


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


# --- Rows of the module tree, in pre-order ---


_MAX_ATTRIBUTE_LENGTH = 200


class ModuleRow(Record, frozen=True, kw_only=True):
    """What is shown of one module; inputs and outputs are those of its first call."""

    index: int  # row of Trace.modules
    path: str
    name: str  # the last part of the path; "" for the root
    class_name: str  # without its Python module
    class_path: str
    parent: int
    depth: int
    parameters: int  # of the whole subtree, each distinct tensor once
    own_parameters: int
    parameter_bytes: int
    calls: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    first_call: int  # row of Trace.module_calls; -1 when it was never called
    repeat_of: int  # the first module of its run of equal siblings; its own index when it is the first
    repeats: int  # how many equal siblings stand in the run
    container: bool
    failed: bool  # the forward pass ended inside it

    @property
    def is_repeat(self) -> bool:
        """It looks the same as an earlier sibling."""
        return self.repeat_of != self.index


def module_rows(trace: Trace, folds: tuple[Fold, ...] | None = None) -> tuple[ModuleRow, ...]:
    """One row per module, in pre-order; the runs of equal layers are found unless they are given."""
    run_of = _runs(module_folds(trace) if folds is None else folds)
    parents = [module.parent for module in trace.modules]
    depths = depths_of(parents)
    inclusive = inclusive_parameters(trace)
    own = own_parameters(trace)
    first_calls, calls = _calls(trace)
    on_failure_path = _failure_path(trace)
    rows: list[ModuleRow] = []
    specs: dict[int, SpecsOfCall] = {}
    for index, module in enumerate(trace.modules):
        fold = run_of.get(index)
        inputs, outputs = specs_of_call(trace, first_calls[index], specs) if calls[index] else ((), ())
        rows.append(
            ModuleRow(
                index=index,
                path=module.path,
                name=module.path.rpartition(".")[2],
                class_name=module.class_name.rpartition(".")[2],
                class_path=module.class_name,
                parent=module.parent,
                depth=depths[index],
                parameters=inclusive[index].elements,
                own_parameters=own[index],
                parameter_bytes=inclusive[index].size_bytes,
                calls=calls[index],
                inputs=inputs,
                outputs=outputs,
                first_call=first_calls[index],
                repeat_of=index if fold is None else fold.first,
                repeats=1 if fold is None else len(fold.members),
                container=module.container,
                failed=module.path in on_failure_path,
            )
        )
    return tuple(rows)


def folded_rows(rows: tuple[ModuleRow, ...]) -> Iterator[ModuleRow]:
    """The rows that are left when each run of equal layers is shown once, by its first; `repeats` says how many."""
    hidden: set[int] = set()
    for row in rows:
        if row.is_repeat or row.parent in hidden:
            hidden.add(row.index)
        else:
            yield row


def attributes_text(trace: Trace, index: int) -> str:
    """What configures a module, in one line."""
    return ", ".join(f"{name}={_shortened(show_value(value))}" for name, value in trace.modules[index].attributes)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_ATTRIBUTE_LENGTH else f"{text[:_MAX_ATTRIBUTE_LENGTH]}…"


def _runs(found: tuple[Fold, ...]) -> dict[int, Fold]:
    return {member: fold for fold in found for member in fold.members}


def _calls(trace: Trace) -> tuple[list[int], list[int]]:
    first = [-1] * len(trace.modules)
    count = [0] * len(trace.modules)
    for row, module in enumerate(trace.call_origins.modules):
        count[module] += 1
        if first[module] < 0:
            first[module] = row
    return first, count


def _failure_path(trace: Trace) -> set[str]:
    if trace.failure is None:
        return set()
    parts = trace.failure.module.split(".") if trace.failure.module else []
    return {".".join(parts[:count]) for count in range(len(parts) + 1)}
