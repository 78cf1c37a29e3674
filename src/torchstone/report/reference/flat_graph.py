"""Trace -> one flat graph with nested groups, repeated layers once: what graph.dot, graph.svg and graph.pdf draw.

In the module graph a box is a call of a module that calls no other module, or an op between modules that is not a view.
In the op graph a box is an op. Equal layers in a row are drawn once: an op of layer 7 is taken for the op at the same
place of layer 0.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from torchstone.record.base import Record
from torchstone.record.trace import NOT_AN_OP, Trace, producers
from torchstone.record.unique import module_folds
from torchstone.report.sections.graph import short_op
from torchstone.report.view.modules import show_specs

NO_GROUP = -1
_VIEWS = frozenset(
    {"view", "_unsafe_view", "reshape", "transpose", "permute", "t", "expand", "unsqueeze", "squeeze", "slice",
     "select", "detach", "alias", "split", "split_with_sizes", "unbind", "chunk", "unfold", "diagonal", "view_as",
     "flatten", "lift_fresh", "as_strided"}
)  # fmt: skip


class Box(Record, frozen=True, kw_only=True):
    """One box."""

    name: str  # unique, and the same every time
    label: str
    detail: str
    kind: str  # module, op, input, output
    group: int = NO_GROUP


class Frame(Record, frozen=True, kw_only=True):
    """A module around boxes."""

    label: str
    detail: str
    path: str = ""  # of the module; the label may count repeats, too
    parent: int = NO_GROUP


class FlatGraph(Record, frozen=True, kw_only=True):
    """Boxes in order of execution, the frames they stand in, and which box feeds which."""

    boxes: tuple[Box, ...]
    frames: tuple[Frame, ...]
    edges: tuple[tuple[int, int], ...]


def flat_graph(trace: Trace, *, ops: bool) -> FlatGraph:
    """The op graph, or the module graph."""
    return _Builder(trace, ops=ops).build()


class _Builder:
    def __init__(self, trace: Trace, *, ops: bool) -> None:
        self.trace = trace
        self.calls = trace.module_calls
        self.inside_calls = {parent for parent in self.calls.parents if parent >= 0}
        self.by_ops = ops
        self.repeats: dict[int, int] = {}  # the first call of a run -> how many
        self.last: dict[int, int] = {}  # the first call of a run -> the last
        self.stands_for = self._folded_ops()
        self.boxes: list[Box] = []
        self.frames: list[Frame] = []
        self.frame_of: dict[int, int] = {}
        self.box_of: dict[tuple[str, int], int] = {}

    def build(self) -> FlatGraph:
        external = {one.tensor: one for one in self.trace.tensors.external if one.kind == "input"}
        for tensor, one in external.items():
            self.box_of["input", tensor] = len(self.boxes)
            detail = str(self.trace.tensors[tensor].spec)
            self.boxes.append(Box(name=f"input{tensor}", label=one.name, detail=detail, kind="input"))
        edges: dict[tuple[int, int], None] = {}
        shown: list[frozenset[int]] = []  # for each op: the boxes that its result comes from
        for op, makers in enumerate(producers(self.trace)):
            sources = self._sources(op, makers, shown, external)
            place = self._place(op)
            if place is None:  # a view between modules: what it shows comes from where it looks
                shown.append(sources)
                continue
            shown.append(frozenset({place}))
            edges |= dict.fromkeys((source, place) for source in sources if source < place)
        self._add_outputs(shown, edges)
        return FlatGraph(boxes=tuple(self.boxes), frames=tuple(self.frames), edges=tuple(sorted(edges)))

    def _sources(
        self, op: int, makers: tuple[int, ...], shown: list[frozenset[int]], external: Mapping[int, object]
    ) -> frozenset[int]:
        found: set[int] = set()
        for tensor, maker in zip(self.trace.ops.inputs[op], makers, strict=True):
            if maker != NOT_AN_OP:
                found |= shown[maker]
            elif tensor in external:
                found.add(self.box_of["input", tensor])
        return frozenset(found)

    def _place(self, op: int) -> int | None:
        """The box an op is drawn in, made when it is the first; None for an op that is not drawn."""
        op = self.stands_for[op]
        call = self.trace.ops.module_calls[op]
        signature = self.trace.ops.signatures[self.trace.ops.signature_of[op]]
        leaf = call >= 0 and call not in self.inside_calls
        if leaf and not self.by_ops:
            return self._box(("call", call), self._module_box(call))
        if not self.by_ops and short_op(signature.op).split(".")[0] in _VIEWS:
            return None
        detail = show_specs(signature.output_specs)
        group = self._frame(call)
        return self._box(
            ("op", op), Box(name=f"op{op}", label=short_op(signature.op), detail=detail, kind="op", group=group)
        )

    def _box(self, key: tuple[str, int], box: Box) -> int:
        if key not in self.box_of:
            self.box_of[key] = len(self.boxes)
            self.boxes.append(box)
        return self.box_of[key]

    def _module_box(self, call: int) -> Box:
        return Box(
            name=f"call{call}",
            label=self._label(call),
            detail=self._class_name(call),
            kind="module",
            group=self._frame(self.calls.parents[call]),
        )

    def _frame(self, call: int) -> int:
        """The frame of a call and of all calls around it; the root has none."""
        if call < 0 or self.calls.parents[call] < 0:
            return NO_GROUP
        if call not in self.frame_of:
            parent = self._frame(self.calls.parents[call])
            self.frame_of[call] = len(self.frames)
            self.frames.append(
                Frame(label=self._label(call), detail=self._class_name(call), path=self._path(call), parent=parent)
            )
        return self.frame_of[call]

    def _label(self, call: int) -> str:
        path = self._path(call) or "(root)"
        if call not in self.repeats:
            return path
        last = self._path(self.last[call]).rpartition(".")[2]
        return f"{path} … {last}, x {self.repeats[call]}"

    def _path(self, call: int) -> str:
        return self.trace.modules[self.calls.modules[call]].path

    def _class_name(self, call: int) -> str:
        return self.trace.modules[self.calls.modules[call]].class_name.rpartition(".")[2]

    def _add_outputs(self, shown: list[frozenset[int]], edges: dict[tuple[int, int], None]) -> None:
        made_by = {tensor: op for op, outputs in enumerate(self.trace.ops.outputs) for tensor in outputs}
        results = self.calls.outputs[0] if len(self.calls) else ()
        makers = sorted({box for tensor in results if tensor in made_by for box in shown[made_by[tensor]]})
        if makers:
            detail = show_specs(self.trace.tensors[tensor].spec for tensor in results)
            self.boxes.append(Box(name="output", label="output", detail=detail, kind="output"))
            edges |= dict.fromkeys((box, len(self.boxes) - 1) for box in makers)

    def _folded_ops(self) -> list[int]:
        """For each op the one it is drawn as."""
        stands_for = list(range(len(self.trace.ops)))
        for first, others in self._runs():
            start = self.calls.first_ops[first]
            for call in others:
                begin = self.calls.first_ops[call]
                for op in range(begin, self.calls.end_ops[call]):
                    if stands_for[op] == op:
                        stands_for[op] = op - begin + start
        for op, other in enumerate(stands_for):  # the other stands before it, and is settled
            stands_for[op] = stands_for[other]
        return stands_for

    def _runs(self) -> Iterator[tuple[int, list[int]]]:
        """Runs of calls of equal layers with equally many ops, outer ones first: the first call, and the others."""
        run_of = {member: fold.first for fold in module_folds(self.trace) for member in fold.members}
        children: defaultdict[int, list[int]] = defaultdict(list)
        for call, parent in enumerate(self.calls.parents):
            children[parent].append(call)
        for parent in sorted(children):
            runs: list[list[int]] = []
            for call in children[parent]:
                if runs and self._continues(runs[-1][-1], call, run_of):
                    runs[-1].append(call)
                else:
                    runs.append([call])
            for first, *others in runs:
                if others:
                    self.repeats[first], self.last[first] = len(others) + 1, others[-1]
                    yield first, others

    def _continues(self, before: int, call: int, run_of: dict[int, int]) -> bool:
        modules = self.calls.modules
        run = run_of.get(modules[call])
        same_length = self._length(before) == self._length(call)
        return (
            run is not None and run == run_of.get(modules[before]) and modules[before] != modules[call] and same_length
        )

    def _length(self, call: int) -> int:
        return self.calls.end_ops[call] - self.calls.first_ops[call]
