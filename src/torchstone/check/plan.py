"""Trace -> the units to run, the tree they form, and the walk over it from the root down."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.check import FAILED_STATUSES, Status
from torchstone.record.module import ModuleSignature
from torchstone.record.trace import Trace
from torchstone.record.unique import UniqueModule, unique_modules
from torchstone.record.value import Atom, Entries, Fields, Items, Value, tensors_in

# From the root down: what passes vouches for all below it, what fails sends the walk to its children, and so does what
# passes with an error that noise explains only in part. The walk is
# pure: it says which units to run next, is given their statuses, and concludes what they mean for each module. A node
# is a unique module, so equal modules are walked once, wherever they hang.


_WORST_FIRST = (
    Status.FAILED,
    Status.IR_EXPORT_FAILED,
    Status.SKIPPED,
    Status.SUCCESS,
    Status.INHERITED_SUCCESS,
)


class Node(Record, frozen=True, kw_only=True):
    """A unique module as the walk sees it."""

    id: str
    children: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # what must run for it; none: it is passed over and its children are walked
    depth: int = 0


class ModuleConclusion(Record, frozen=True, kw_only=True):
    """What the walk concludes about a module."""

    status: Status
    children_status: Status | None = None  # of one that was passed over: the worst below it
    reached: bool = True  # False: a limit of depth or a pattern kept the walk from it


class Walk:
    """One walk; `begin`, then `tell` each result until nothing is left to run."""

    def __init__(self, nodes: Mapping[str, Node], roots: Sequence[str], *, max_depth: int | None = None) -> None:
        self._nodes = nodes
        self.roots = tuple(roots)
        self._max_depth = max_depth
        self._waiting: dict[str, set[str]] = {}  # node -> units that have not ended
        self._node_of: dict[str, str] = {}
        self._statuses: dict[str, Status] = {}  # of the nodes that ran
        self._passed_over: set[str] = set()
        self._doubted: set[str] = set()

    def begin(self) -> list[str]:
        """The units to run first."""
        return self._enter(self.roots)

    def tell(self, unit: str, status: Status, *, doubted: bool = False) -> list[str]:
        """A unit ended, skipped where it could not be judged, doubted where it is suspicious; the units to run next."""
        node = self._node_of[unit]
        if doubted:
            self._doubted.add(node)
        self._statuses[node] = worst((self._statuses.get(node, Status.SUCCESS), status))
        self._waiting[node].discard(unit)
        vouched = self._statuses[node] is Status.SUCCESS and node not in self._doubted
        if self._waiting[node] or vouched:
            return []
        return self._enter(self._children(node))

    def add(self, node: str, status: Status) -> None:
        """A further occurrence of a node ended: a node is as good as the worst of its occurrences."""
        self._statuses[node] = worst((self._statuses.get(node, Status.SUCCESS), status))

    def failed(self) -> list[str]:
        """The nodes that ran and failed, in the order of the nodes."""
        return [name for name in self._nodes if self._statuses.get(name) in FAILED_STATUSES]

    def has_failure_below(self, node: str) -> bool:
        """Whether something under a node failed, too."""
        return any(self._statuses.get(below) in FAILED_STATUSES for below in self.below(node))

    def conclude(self) -> dict[str, ModuleConclusion]:
        """The conclusion for every node."""
        covered = {
            below for node, status in self._statuses.items() if status is Status.SUCCESS for below in self.below(node)
        }
        own = {node: self._own_status(node, covered) for node in self._nodes}
        return {
            node: ModuleConclusion(
                status=status,
                children_status=self._worst_below(node, own) if status is Status.SKIPPED else None,
                reached=node in self._passed_over or node in self._statuses or status is not Status.SKIPPED,
            )
            for node, status in own.items()
        }

    def _own_status(self, node: str, covered: set[str]) -> Status:
        if node in self._statuses:
            return self._statuses[node]
        if node in covered and node not in self._passed_over:
            return Status.INHERITED_SUCCESS
        return Status.SKIPPED

    def _worst_below(self, node: str, statuses: Mapping[str, Status]) -> Status | None:
        """Containers inside containers do not count: what they hold does."""
        below = [statuses[name] for name in self.below(node)]
        judged = [status for status in below if status is not Status.SKIPPED]
        return worst(judged or below) if below else None

    def _enter(self, nodes: Iterable[str]) -> list[str]:
        units: list[str] = []
        for name in nodes:
            if name in self._waiting or name in self._passed_over:
                continue  # another parent led here before
            node = self._nodes[name]
            if node.units:
                self._waiting[name] = set(node.units)
                self._node_of |= dict.fromkeys(node.units, name)
                units += node.units
            else:
                self._passed_over.add(name)
                units += self._enter(self._children(name))
        return units

    def _children(self, name: str) -> tuple[str, ...]:
        node = self._nodes[name]
        too_deep = self._max_depth is not None and node.depth >= self._max_depth
        return () if too_deep else node.children

    def is_within_depth(self, name: str) -> bool:
        """Whether the limit of depth allows a node to be run."""
        return self._max_depth is None or self._nodes[name].depth <= self._max_depth

    def below(self, name: str) -> set[str]:
        """The nodes under a node, at any depth."""
        found: set[str] = set()
        ahead = list(self._nodes[name].children)
        while ahead:
            one = ahead.pop()
            if one not in found and one != name:
                found.add(one)
                ahead += self._nodes[one].children
        return found


def worst(statuses: Iterable[Status]) -> Status:
    """The one that a reader must see first."""
    return min(statuses, key=_WORST_FIRST.index)


# --- Units: one for each unique module and each kind of call it receives, and their tree ---


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
    children_of = _children_of(trace)
    root = unique_of[0]
    nodes = {}
    for module in unique:
        first = members[module.id][0]
        passed_over = module.container and module.id != root
        called = _shared_callees(trace, units_of[module.id], children_of)
        children = dict.fromkeys(unique_of[number] for number in (*children_of.get(first, ()), *called))
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


def occurrence_units(trace: Trace, found: Plan, unit: Unit) -> list[Unit]:
    """The module calls that a call makes itself, each as a unit of its own, with its own values."""
    calls = trace.module_calls
    unique_of = {path: module for module in found.unique for path in module.occurrences}
    inside = {unit.row}
    units = []
    row = unit.row + 1
    while row < len(calls) and calls.first_ops[row] <= calls.end_ops[unit.row]:
        if calls.parents[row] in inside:
            module = unique_of[trace.modules[calls.modules[row]].path]
            if found.nodes[module.id].units:
                signature = trace.module_calls[row].signature
                units.append(
                    Unit(id=f"{module.id}#{row}", module=module.id, row=row, calls=1, inputs=_shown_inputs(signature))
                )
            else:
                inside.add(row)  # a container: what it holds is run
        row += 1
    return units


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


def _children_of(trace: Trace) -> Mapping[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for number, module in enumerate(trace.modules):
        children[module.parent].append(number)
    return children


def _shared_callees(trace: Trace, units: Sequence[Unit], children_of: Mapping[int, list[int]]) -> list[int]:
    """Modules that a call of this one calls although they hang elsewhere: shared ones."""
    calls = trace.module_calls
    found: dict[int, None] = {}
    for unit in units:
        inside = _subtree(calls.modules[unit.row], children_of)
        row = unit.row + 1
        while row < len(calls) and calls.first_ops[row] <= calls.end_ops[unit.row] and calls.parents[row] >= unit.row:
            if calls.parents[row] == unit.row and calls.modules[row] not in inside:
                found[calls.modules[row]] = None
            row += 1
    return list(found)


def _subtree(number: int, children_of: Mapping[int, list[int]]) -> set[int]:
    inside = {number}
    ahead = [number]
    while ahead:
        below = children_of.get(ahead.pop(), [])
        inside.update(below)
        ahead += below
    return inside
