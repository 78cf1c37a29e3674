"""Trace -> what can be run: a unit for each unique module and each kind of call it gets, and the tree they hang in."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from fnmatch import fnmatchcase

from torchstone.check.walk import Node
from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.module import ModuleSignature
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModule, unique_modules
from torchstone.record.value import Atom, Entries, Fields, Items, Value, tensors_in

_FLAGS = (bool, str, type(None), Atom)


class Unit(Record, frozen=True, kw_only=True):
    """One kind of call of one unique module; `row` is the call that stands for it."""

    id: str  # mod_004_conv1, and mod_004_conv1@2 for the second kind of call
    module: str  # id of the unique module
    row: int
    calls: int
    inputs: tuple[str, ...]


class Plan(Record, frozen=True, kw_only=True):
    """Everything that a check may run, before it is known what must."""

    unique: tuple[UniqueModule, ...]
    units: dict[str, Unit]
    nodes: dict[str, Node]
    root: str


def plan(trace: Trace) -> Plan:
    """The units of a trace, and its unique modules as the walk needs them."""
    unique = unique_modules(trace).modules
    number_of = {module.path: number for number, module in enumerate(trace.modules)}
    members = {module.id: tuple(number_of[path] for path in module.occurrences) for module in unique}
    unique_of = {number: name for name, numbers in members.items() for number in numbers}
    units = [unit for module in unique for unit in _units(trace, module, members[module.id])]
    units_of: defaultdict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        units_of[unit.module].append(unit)
    held = _held_children(trace)
    root = unique_of[0]
    nodes = {}
    for module in unique:
        first = members[module.id][0]
        passed_over = module.container and module.id != root
        called = _called_from_outside(trace, units_of[module.id], held)
        children = dict.fromkeys(unique_of[number] for number in (*held.get(first, ()), *called))
        children.pop(module.id, None)  # a module that calls itself
        nodes[module.id] = Node(
            id=module.id,
            children=tuple(children),
            units=() if passed_over else tuple(unit.id for unit in units_of[module.id]),
            depth=module.module_path.count(".") + 1 if module.module_path else 0,
        )
    return Plan(unique=unique, units={unit.id: unit for unit in units}, nodes=nodes, root=root)


def roots_of(found: Plan, only: str) -> tuple[str, ...]:
    """Where the walk begins: at the root, or at the modules that a pattern of paths or classes means."""
    if not only:
        return (found.root,)
    matching = [module for module in found.unique if _matches(module, only)]
    runnable = tuple(module.id for module in matching if found.nodes[module.id].units or module.container)
    if not runnable:
        what = "only modules that were never called" if matching else "no module"
        msg = f"--only {only!r} matches {what}; give a path or class such as layers.*.mlp or Linear"
        raise InputError(msg)
    return runnable


def _matches(module: UniqueModule, pattern: str) -> bool:
    names = (*module.occurrences, module.class_name, module.class_name.rpartition(".")[2], module.id)
    return any(fnmatchcase(name, pattern) for name in names)


def _units(trace: Trace, module: UniqueModule, numbers: Sequence[int]) -> list[Unit]:
    wanted = set(numbers)
    rows: dict[Hashable, list[int]] = {}
    for row, number in enumerate(trace.module_calls.modules):
        if number in wanted:
            signature = trace.module_calls.signatures[trace.module_calls.signature_of[row]]
            rows.setdefault(kind_of_call(signature), []).append(row)
    return [
        Unit(
            id=module.id if place == 0 else f"{module.id}@{place + 1}",
            module=module.id,
            row=same[0],
            calls=len(same),
            inputs=_shown_inputs(trace.module_calls[same[0]].signature),
        )
        for place, same in enumerate(rows.values())
    ]


def kind_of_call(signature: ModuleSignature) -> Hashable:
    """Calls of one kind have tensors of the same shapes and types in the same places, and the same flags."""
    arguments = tuple((argument.name, _kind(argument.value)) for argument in signature.arguments)
    return arguments, tuple((spec.shape, spec.dtype) for spec in tensors_in(signature.output))


def _kind(value: Value) -> Hashable:
    match value:
        case Items(items=items):
            return tuple(map(_kind, items))
        case Entries(entries=entries):
            return tuple(_kind(item) for _, item in entries)
        case Fields(fields=fields):
            return tuple(_kind(item) for _, item in fields)
        case _ if isinstance(value, _FLAGS):
            return (type(value).__name__, value)
        case _:
            return tuple((spec.shape, spec.dtype) for spec in tensors_in(value))


def _shown_inputs(signature: ModuleSignature) -> tuple[str, ...]:
    return tuple(str(spec) for argument in signature.arguments for spec in tensors_in(argument.value))


def _held_children(trace: Trace) -> Mapping[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for number, module in enumerate(trace.modules):
        children[module.parent].append(number)
    return children


def _called_from_outside(trace: Trace, units: Sequence[Unit], held: Mapping[int, list[int]]) -> list[int]:
    """Modules that a call of this one calls although they hang elsewhere: shared ones."""
    calls = trace.module_calls
    found: dict[int, None] = {}
    for unit in units:
        inside = _subtree(calls.modules[unit.row], held)
        row = unit.row + 1
        while row < len(calls) and calls.first_ops[row] <= calls.end_ops[unit.row] and calls.parents[row] >= unit.row:
            if calls.parents[row] == unit.row and calls.modules[row] not in inside:
                found[calls.modules[row]] = None
            row += 1
    return list(found)


def _subtree(number: int, held: Mapping[int, list[int]]) -> set[int]:
    inside = {number}
    ahead = [number]
    while ahead:
        below = held.get(ahead.pop(), [])
        inside.update(below)
        ahead += below
    return inside
