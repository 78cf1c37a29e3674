"""The model graph, one container at a time: what a module call does, in order, and how data flows between its parts.

A container is a module call; its parts are the module calls and ops directly inside it. A tensor that an op deep in one
part makes and an op deep in another part reads is an edge between the two parts. Equal containers (the 32 layers of a
decoder) share one drawing: it refers to parts by their distance from the container. Only the forward pass is drawn:
what flows back through a module in the backward pass is not a part of what the module does.
"""

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from itertools import islice
from typing import TypeVar

from torchstone.record.base import Record
from torchstone.record.trace import NOT_AN_OP, Trace, producers
from torchstone.record.unique import Fold, module_folds
from torchstone.record.value import show_value, tensors_in
from torchstone.report.view.modules import show_specs
from torchstone.units import many

TOP = -1  # the container of what runs outside any module
_WEIGHTS = frozenset({"parameter", "buffer"})
_MAX_INPUTS = 12
_MAX_TEXTS = 3
Key = TypeVar("Key")


class Kind(StrEnum):
    """What a node stands for."""

    CALL = "call"
    OP = "op"
    FOLD = "fold"  # a run of calls of equal layers
    INPUT = "input"
    OUTPUT = "output"


class Node(Record, frozen=True, kw_only=True):
    """One box of a drawing."""

    kind: Kind
    label: str
    detail: str  # class, result or shape
    target: int = 0  # call: distance to the container's call; op: distance to its first op
    count: int = 1  # layers in a fold
    failed: bool = False


class Edge(Record, frozen=True, kw_only=True):
    """Data that flows from one box to another."""

    source: int
    target: int
    text: str  # the tensors


class Drawing(Record, frozen=True, kw_only=True):
    """The inside of one container, boxes in order of execution: inputs, parts, output."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


class Container(Record, frozen=True, kw_only=True):
    """A module call that has something inside."""

    call: int  # row of Trace.module_calls, or TOP
    drawing: int
    first_op: int


class Graph(Record, frozen=True, kw_only=True):
    """All containers of a trace and their distinct drawings."""

    containers: tuple[Container, ...]
    drawings: tuple[Drawing, ...]


def model_graph(trace: Trace, folds: tuple[Fold, ...] | None = None) -> Graph:
    """Every container with its drawing; the runs of equal layers are found unless they are given."""
    flow = _Flow(trace)
    known: dict[Drawing, int] = {}
    containers: list[Container] = []
    painter = _Painter(trace, flow, module_folds(trace) if folds is None else folds)
    for call in range(TOP, len(trace.module_calls)):
        if flow.parts[call]:
            drawing = painter.draw(call)
            number = known.setdefault(drawing, len(known))
            first_op = 0 if call == TOP else trace.module_calls.first_ops[call]
            containers.append(Container(call=call, drawing=number, first_op=first_op))
    return Graph(containers=tuple(containers), drawings=tuple(known))


class _Flow:
    """Which parts each container has and what flows between them; a part is an op number, or ops + call number."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ops = len(trace.ops)
        self.parents = trace.module_calls.parents
        self.depths = self._depths()
        self.parts = self._parts()
        # container -> parts -> tensors; container -> tensor -> parts; container -> parts: all in order
        self.edges: defaultdict[int, dict[tuple[int, int], dict[int, None]]] = defaultdict(dict)
        self.enters: defaultdict[int, dict[int, dict[int, None]]] = defaultdict(dict)
        self.leaves: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._follow_tensors()
        self._follow_results()

    def _depths(self) -> list[int]:
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return depths

    def _depth(self, call: int) -> int:
        return 0 if call == TOP else self.depths[call]

    def _parts(self) -> defaultdict[int, list[int]]:
        calls = self.trace.module_calls
        inside: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for call, parent in enumerate(calls.parents):
            inside[max(parent, TOP)].append((calls.first_ops[call], 0, self.ops + call))
        for op, call in enumerate(self.trace.ops.module_calls[: self.trace.ops.forward_calls]):
            inside[max(call, TOP)].append((op, 1, op))
        parts = ((container, [part for _, _, part in sorted(found)]) for container, found in inside.items())
        return defaultdict(list, parts)

    def _follow_tensors(self) -> None:
        external = {one.tensor: one.kind for one in self.trace.tensors.external}
        calls = self.trace.ops.module_calls
        for op, made_by in enumerate(islice(producers(self.trace), self.trace.ops.forward_calls)):
            for tensor, producer in zip(self.trace.ops.inputs[op], made_by, strict=True):
                if producer != NOT_AN_OP:
                    self._connect(tensor, (max(calls[producer], TOP), producer), (max(calls[op], TOP), op))
                elif external.get(tensor) not in _WEIGHTS:
                    self._enter(tensor, (max(calls[op], TOP), op))

    def _connect(self, tensor: int, source: tuple[int, int], target: tuple[int, int]) -> None:
        above, maker = source
        below, reader = target
        while above != below:
            if self._depth(above) >= self._depth(below):
                self.leaves[above][maker] = None
                above, maker = self.parents[above], self.ops + above
            else:
                _note(self.enters[below], tensor, reader)
                below, reader = self.parents[below], self.ops + below
        _note(self.edges[above], (maker, reader), tensor)

    def _enter(self, tensor: int, target: tuple[int, int]) -> None:
        container, reader = target
        while True:
            _note(self.enters[container], tensor, reader)
            if container == TOP:
                return
            container, reader = max(self.parents[container], TOP), self.ops + container

    def _follow_results(self) -> None:
        """What a call returns leaves it, even when nothing reads it."""
        made_by = {tensor: op for op, outputs in enumerate(self.trace.ops.outputs) for tensor in outputs}
        for call, outputs in enumerate(self.trace.module_calls.outputs):
            for tensor in outputs:
                part = self._part_of(made_by.get(tensor, NOT_AN_OP), call)
                if part is not None:
                    self.leaves[call][part] = None

    def _part_of(self, op: int, container: int) -> int | None:
        """The part of a container that an op runs in; None when it runs elsewhere."""
        if op == NOT_AN_OP:
            return None
        part, call = op, max(self.trace.ops.module_calls[op], TOP)
        while call not in (container, TOP):
            part, call = self.ops + call, max(self.parents[call], TOP)
        return part if call == container else None


def _note(into: "dict[Key, dict[int, None]]", key: Key, value: int) -> None:
    into.setdefault(key, {})[value] = None


class _Painter:
    """Turns containers into drawings."""

    def __init__(self, trace: Trace, flow: _Flow, folds: tuple[Fold, ...]) -> None:
        self.trace = trace
        self.flow = flow
        self.run_of = {member: fold.first for fold in folds for member in fold.members}
        self.spec_texts = [str(spec) for spec in trace.tensors.specs]
        self.results = [show_specs(one.output_specs) or show_value(one.output) for one in trace.ops.signatures]
        self.failed_calls = self._failed_calls()

    def draw(self, call: int) -> Drawing:
        inputs = self._inputs(call)
        groups = self._groups(self.flow.parts[call])
        nodes = [node for node, _ in inputs] + [self._node(group, call) for group in groups]
        place_of = {part: len(inputs) + place for place, group in enumerate(groups) for part in group}
        texts: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for place, (_, readers) in enumerate(inputs):
            for tensor, part in readers:
                if part in place_of:  # ops of the backward pass are not drawn
                    texts[place, place_of[part]].append(tensor)
        for (maker, reader), tensors in self.flow.edges[call].items():
            if place_of.get(maker, len(nodes)) < place_of.get(reader, -1):  # equal: inside a fold
                texts[place_of[maker], place_of[reader]].extend(tensors)
        edges = [
            Edge(source=source, target=target, text=self._tensors(found))
            for (source, target), found in sorted(texts.items())
        ]
        if self.flow.leaves[call] and call != TOP:
            output = Node(kind=Kind.OUTPUT, label="output", detail=self._result(call))
            makers = sorted({place_of[part] for part in self.flow.leaves[call] if part in place_of})
            edges += [Edge(source=place, target=len(nodes), text="") for place in makers]
            nodes.append(output)
        return Drawing(nodes=tuple(nodes), edges=tuple(edges))

    def _inputs(self, call: int) -> list[tuple[Node, list[tuple[int, int]]]]:
        names = self._argument_names(call)
        entering = self.flow.enters[call]
        known = [tensor for tensor in names if tensor in entering]
        others = [tensor for tensor in entering if tensor not in names]
        single = known + (others if len(known) + len(others) <= _MAX_INPUTS else [])
        found = [
            (
                Node(kind=Kind.INPUT, label=names.get(tensor, "from outside"), detail=self._tensors([tensor])),
                [(tensor, part) for part in entering[tensor]],
            )
            for tensor in single
        ]
        rest = [tensor for tensor in others if tensor not in single]
        if rest:
            node = Node(kind=Kind.INPUT, label="from outside", detail=many(len(rest), "tensor"))
            found.append((node, [(tensor, part) for tensor in rest for part in entering[tensor]]))
        return found

    def _argument_names(self, call: int) -> dict[int, str]:
        if call == TOP:
            return {one.tensor: one.name for one in self.trace.tensors.external if one.kind == "input"}
        row = self.trace.module_calls[call]
        names = [argument.name for argument in row.signature.arguments for _ in tensors_in(argument.value)]
        return dict(zip(row.inputs, names, strict=False))  # a call that raised may know fewer tensors

    def _groups(self, parts: Iterable[int]) -> list[list[int]]:
        """Parts in order, calls of equal layers in a row together."""
        groups: list[list[int]] = []
        last_run: int | None = None
        for part in parts:
            run = (
                None if part < self.flow.ops else self.run_of.get(self.trace.module_calls.modules[part - self.flow.ops])
            )
            if run is not None and run == last_run:
                groups[-1].append(part)
            else:
                groups.append([part])
            last_run = run
        return groups

    def _node(self, group: list[int], container: int) -> Node:
        part = group[0]
        if part < self.flow.ops:
            number = self.trace.ops.signature_of[part]
            first = 0 if container == TOP else self.trace.module_calls.first_ops[container]
            op = self.trace.ops.signatures[number].op
            return Node(kind=Kind.OP, label=op, detail=self.results[number], target=part - first)
        call = part - self.flow.ops
        module = self.trace.modules[self.trace.module_calls.modules[call]]
        name = self._relative(module.path, container)
        class_name = module.class_name.rpartition(".")[2]
        failed = any(one - self.flow.ops in self.failed_calls for one in group)
        if len(group) == 1:
            return Node(
                kind=Kind.CALL, label=name or class_name, detail=class_name, target=call - container, failed=failed
            )
        last = self.trace.modules[self.trace.module_calls.modules[group[-1] - self.flow.ops]]
        label = f"{name} … {self._relative(last.path, container).rpartition('.')[2]}"
        return Node(
            kind=Kind.FOLD, label=label, detail=class_name, target=call - container, count=len(group), failed=failed
        )

    def _relative(self, path: str, container: int) -> str:
        if container == TOP:
            return path
        above = self.trace.modules[self.trace.module_calls.modules[container]].path
        return path.removeprefix(f"{above}.") if above else path

    def _tensors(self, tensors: list[int]) -> str:
        texts = list(dict.fromkeys(self.spec_texts[self.trace.tensors.spec_of[tensor]] for tensor in tensors))
        return ", ".join(texts[:_MAX_TEXTS]) + (
            f" and {len(texts) - _MAX_TEXTS} more" if len(texts) > _MAX_TEXTS else ""
        )

    def _result(self, call: int) -> str:
        return show_specs(tensors_in(self.trace.module_calls[call].signature.output))

    def _failed_calls(self) -> set[int]:
        """The calls that were running when the forward pass ended."""
        if self.trace.failure is None:
            return set()
        last_call = {
            self.trace.modules[module].path: call for call, module in enumerate(self.trace.module_calls.modules)
        }
        call = last_call.get(self.trace.failure.module, TOP)
        failed: set[int] = set()
        while call != TOP:
            failed.add(call)
            call = max(self.flow.parents[call], TOP)
        return failed
