"""Program runs while they are read, and which of them are the same graph.

A program name does not identify a graph: every graph of a torch program is called `main`, and a log has no graph id.
The sequence of ops does, including their SSA names and types, because a graph prints the same text each time it runs.
Two runs with equal sequences are passes of one graph.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Protocol

from torchstone.memory.mlir_text import MARK_BYTES, head_of, op_marks
from torchstone.record.memory import NONE, CompiledModule, Graph, OpCall, OpFlag, ProgramRun, Role, TensorType


@dataclass(slots=True)
class OpenRun:
    """A program run whose end may still come."""

    name: str
    role: Role
    parent: int
    parent_op: int
    first_op: int
    first_line: int
    cache_key: str = ""
    end_op: int = NONE
    last_line: int = NONE
    complete: bool = False


def close_run(run: OpenRun, *, end_op: int, line: int, complete: bool) -> None:
    """Close a run, by its own last line or because the log continues with something else."""
    run.end_op, run.last_line, run.complete = end_op, line, complete


def freeze_run(run: OpenRun, *, pass_index: int, graph: int) -> ProgramRun:
    """The run as a record."""
    return ProgramRun(**{name: getattr(run, name) for name in OpenRun.__slots__}, pass_index=pass_index, graph=graph)


# --- Which runs are the same graph ---

_UNREAD = int(OpFlag.UNREAD)  # a plain int: it is compared a million times
_MOST_DAMAGED = 3  # ops that a run may have more or less than its graph, because lines were joined or split
_MOST_ALTERED = 0.15  # of the ops of a run, or of the characters of an op, that may be damaged
_MOST_CHARACTERS = 12  # of an op text that may be damaged


class OpColumns(Protocol):
    """The rows that runs point into."""

    calls: list[OpCall]
    call_of: "array[int]"
    op_type_of: "array[int]"
    program_of: "array[int]"
    flags_of: "array[int]"


def assign_graphs(
    runs: Sequence[OpenRun], ops: OpColumns, *, types: Sequence[TensorType], modules: Sequence[CompiledModule]
) -> tuple[tuple[ProgramRun, ...], tuple[Graph, ...]]:
    """Number the passes, find the graph of each, and the dump of each graph."""
    outermost = [number for number, run in enumerate(runs) if run.parent == NONE and run.role is Role.FORWARD]
    sequences = {number: own_sequence(runs, number, ops) for number in outermost}
    members = _group(runs, sequences, ops, types)
    finder = ModuleFinder(ops, types, modules)
    longest = [max(group, key=lambda number: (runs[number].complete, len(sequences[number]))) for group in members]
    found = finder.find_all([(sequences[number], runs[number].complete) for number in longest])
    graphs = tuple(
        Graph(name=runs[group[0]].name, runs=tuple(group), module=module)
        for group, module in zip(members, found, strict=True)
    )
    graph_of = {number: index for index, group in enumerate(members) for number in group}
    pass_of = {number: index for index, number in enumerate(outermost)}
    return tuple(_freeze_all(runs, pass_of, graph_of)), graphs


def own_sequence(runs: Sequence[OpenRun], number: int, ops: OpColumns) -> "array[int]":
    """The ops of a run without those of nested runs: call numbers, or op types below -1 where there is no text.

    Nested runs are left out because a const-eval runs in the first pass only: with its ops, the first pass would be a
    graph of its own. Equal op texts share a call number, so comparing numbers compares texts, with their shapes.
    """
    run = runs[number]
    calls = ops.call_of[run.first_op : run.end_op]
    has_nested = ops.program_of[run.first_op : run.end_op].count(number) < len(calls)
    if not has_nested and NONE not in calls:
        return calls
    rows = (row for row in range(run.first_op, run.end_op) if ops.program_of[row] == number)
    return array("i", (ops.call_of[row] if ops.call_of[row] != NONE else -2 - ops.op_type_of[row] for row in rows))


def _group(
    runs: Sequence[OpenRun], sequences: dict[int, "array[int]"], ops: OpColumns, types: Sequence[TensorType]
) -> list[list[int]]:
    """Group runs by their op sequences.

    Complete runs match exactly. A run that is cut off at its start or end (a failure, the edges of the log) or that has
    damaged lines joins the first graph that it can be a part of. Longer ones go first, so that a run that matches no
    complete graph founds a group which shorter ones can join.
    """
    groups: dict[tuple[str, bytes], list[int]] = {}
    partial = []
    for number, sequence in sequences.items():
        if runs[number].complete and not _is_damaged(runs[number], ops):
            groups.setdefault((runs[number].name, sequence.tobytes()), []).append(number)
        else:
            partial.append(number)
    for number in sorted(partial, key=lambda number: (-len(sequences[number]), number)):
        home = next((known for known in groups if _belongs(runs[number], sequences[number], known, ops)), None)
        groups.setdefault(home or (runs[number].name, sequences[number].tobytes()), []).append(number)
    merged = _merge_altered(list(groups.values()), sequences, ops, types)
    return sorted((sorted(group) for group in merged), key=lambda group: group[0])


def _belongs(run: OpenRun, sequence: "array[int]", known: tuple[str, bytes], ops: OpColumns) -> bool:
    """Whether a run that is cut or damaged can be a run of a known graph."""
    name, packed = known
    if run.name and not is_misspelt_name(run.name, name):
        return False
    part = sequence.tobytes()
    if packed.startswith(part) or packed.endswith(part):
        return True
    whole = array("i", packed)
    if run.complete:
        return _agree(sequence, whole, ops)
    size = len(sequence)
    return size <= len(whole) and (_agree(sequence, whole[:size], ops) or _agree(sequence, whole[-size:], ops))


def is_misspelt_name(damaged: str, name: str) -> bool:
    """Whether a program name is the other one, or can be it with a damaged character or two."""
    if len(damaged) != len(name):
        return False
    unlike = [one for one, two in zip(damaged, name, strict=True) if one != two]
    return not unlike or (len(unlike) <= 1 + len(name) // 8 and not any(one.isdigit() for one in unlike))


def _is_damaged(run: OpenRun, ops: OpColumns) -> bool:
    """Whether a line of the run could not be read, or only some of its ops have a text."""
    calls = ops.call_of[run.first_op : run.end_op]
    flags = set(ops.flags_of[run.first_op : run.end_op])
    return any(one & _UNREAD for one in flags) or 0 < calls.count(NONE) < len(calls)


def _agree(mine: "array[int]", other: "array[int]", ops: OpColumns) -> bool:
    """Whether two sequences are equal but for ops whose text is missing or broken."""
    if len(mine) != len(other):
        return False
    return all(
        one == two or one < NONE or _is_shadow(ops.calls[one], ops.calls[two] if two >= 0 else None)
        for one, two in zip(mine, other, strict=True)
    )


def _is_shadow(damaged: OpCall, sound: OpCall | None) -> bool:
    """Whether the remains of a damaged op text can be that op."""
    if damaged.result_types or damaged.operand_types:
        return False
    return not damaged.name or (sound is not None and sound.name.startswith(damaged.name))


def _merge_altered(
    groups: list[list[int]], sequences: dict[int, "array[int]"], ops: OpColumns, types: Sequence[TensorType]
) -> list[list[int]]:
    """Merge a single run into a graph that differs in a few ops, each of which is seen only once.

    Damaged bytes inside a location, a name or a layout leave a text that reads well, or join two lines into one.
    """
    counts = Counter(call for sequence in sequences.values() for call in sequence)
    single = {
        group[0] for group in groups if len(group) == 1 and any(counts[call] == 1 for call in sequences[group[0]])
    }
    merged: list[list[int]] = []
    for group in sorted(groups, key=lambda group: (group[0] in single, -len(group), group[0])):  # the sound ones first
        mine = sequences[group[0]]
        if group[0] not in single:
            merged.append(group)
            continue
        home = next((known for known in merged if _is_altered(mine, sequences[known[0]], ops, types)), None)
        if home is None:
            merged.append(group)
        else:
            home.extend(group)
    return merged


def _is_altered(mine: "array[int]", other: "array[int]", ops: OpColumns, types: Sequence[TensorType]) -> bool:
    if abs(len(mine) - len(other)) > _MOST_DAMAGED or not mine:
        return False
    if len(mine) == len(other):
        differing = [(one, two) for one, two in zip(mine, other, strict=True) if one != two]
        return len(differing) <= len(mine) * _MOST_ALTERED and all(
            one < 0 or two < 0 or _is_misspelt(ops.calls[one], ops.calls[two], types) for one, two in differing
        )
    steps = SequenceMatcher(None, mine, other, autojunk=False).get_opcodes()
    unlike = sum(max(end - start, until - since) for tag, start, end, since, until in steps if tag != "equal")
    return unlike <= _MOST_DAMAGED


def _is_misspelt(mine: OpCall, other: OpCall, types: Sequence[TensorType]) -> bool:
    """Whether two op texts can be one that was damaged: a few characters differ, and not only digits.

    Graphs that differ in a number (a shape, a constant) are different graphs.
    """
    if not (mine.result_types or mine.operand_types) or not (other.result_types or other.operand_types):
        return True  # only the name of one could be read
    rows = [(*call.operand_types, *call.result_types) for call in (mine, other)]
    read = [
        (types[one].text, types[two].text)
        for one, two in zip_longest(*rows, fillvalue=NONE)
        if NONE not in (one, two) and types[one].buffer is not None and types[two].buffer is not None
    ]
    ours = _spelled(mine) + " ".join(one for one, _ in read)
    theirs = _spelled(other) + " ".join(two for _, two in read)
    unlike = [(one, two) for one, two in zip_longest(ours, theirs, fillvalue=" ") if one != two]
    if len(ours) != len(theirs):
        is_like = SequenceMatcher(None, ours, theirs, autojunk=False).ratio() > 1 - _MOST_ALTERED
        return is_like or _spelled(mine) == _spelled(other)
    return len(unlike) <= _MOST_CHARACTERS and not (unlike and all(f"{one}{two}".isdigit() for one, two in unlike))


def _spelled(call: OpCall) -> str:
    return f"{call.name}{call.results}{call.operands}{call.callee}{call.details}{call.location}"


# --- Which module dump belongs to a graph ---


class ModuleFinder:
    """Looks for the dumps of graphs.

    A dump is printed at compile time and does not say which run it belongs to. Its ops do: results, name and operands
    of each (the head) are printed alike at run time, and so are the shapes. A run that is cut off or failed has some of
    the ops. Where several dumps remain, the shapes of the arguments decide; then the order of compilation.
    """

    def __init__(self, ops: OpColumns, types: Sequence[TensorType], modules: Sequence[CompiledModule]) -> None:
        self._ops, self._types, self._modules = ops, types, modules
        self._known: dict[int, tuple[bytes, bytes]] = {}
        self._taken: set[int] = set()
        self._spelled: dict[int, str | None] = {}
        self._declared = [{one.value: types[one.type].shape for one in module.arguments} for module in modules]

    def find_all(self, graphs: Sequence[tuple["array[int]", bool]]) -> list[int]:
        """The module of each graph, given as its op sequence and whether that is complete; NONE where it has none."""
        found = [NONE] * len(graphs)
        for is_sure in (True, False):  # sure ones first: they leave fewer dumps to choose from
            for index, (sequence, complete) in enumerate(graphs):
                if found[index] == NONE:
                    found[index] = self._find(sequence, complete=complete, by_ops=is_sure)
                    self._taken |= {found[index]} - {NONE}
        if found.count(NONE) == 1:
            index = found.index(NONE)
            found[index] = self._last_one(graphs[index][0])
        return found

    def _last_one(self, sequence: "array[int]") -> int:
        """The only dump that no graph belongs to, for the only graph without a dump, unless its arguments contradict.

        A traced graph runs its ops in other programs than those of its dump, so that nothing else can tell.
        """
        names = {self._modules[row].name for row in self._taken}
        left = [row for row, module in enumerate(self._modules) if row not in self._taken and module.name not in names]
        return left[0] if len(left) == 1 and self._takes(left[0], self._argument_shapes(sequence)) else NONE

    def _find(self, sequence: "array[int]", *, complete: bool, by_ops: bool) -> int:
        seen = self._argument_shapes(sequence)
        rows = [row for row in range(len(self._modules)) if self._takes(row, seen)]
        if by_ops:
            marks = [self._marks(call) for call in sequence]
            heads = [one[0] if one else None for one in marks]
            rows = [row for row in rows if _has(self._modules[row].heads, heads, complete=complete)]
            if len(rows) > 1:
                shapes = [one[1] if one else None for one in marks]
                exact = [row for row in rows if _has(self._modules[row].shapes, shapes, complete=complete)]
                rows = exact or rows
        elif not seen:
            return NONE
        free = [row for row in rows if row not in self._taken]
        if not by_ops:
            free = self._most_alike(free, sequence)
        return next(iter(free or (rows if by_ops else [])), NONE)

    def _most_alike(self, rows: list[int], sequence: "array[int]") -> list[int]:
        """The dump that begins with most of the ops, as that of a traced graph does; none where two are as likely."""
        marks = [self._marks(call) for call in sequence]
        alike = {
            row: _equal_ops_at_start(self._modules[row].heads, [one[0] if one else None for one in marks])
            for row in rows
        }
        best = [row for row in rows if alike[row] == max(alike.values())]
        names = {self._modules[row].name for row in best}
        return best if len(names) == 1 else []

    def _marks(self, call: int) -> tuple[bytes, bytes] | None:
        """The digests of an op's head and shapes; None where its text is missing or broken."""
        if call < 0:
            return None
        if call not in self._known:
            op = self._ops.calls[call]
            rows = (*op.operand_types, *op.result_types)
            self._known[call] = op_marks(head_of(op), [dims for row in rows if (dims := self._dims(row)) is not None])
        op = self._ops.calls[call]
        return None if not op.operand_types and not op.result_types and op.operands else self._known[call]

    def _dims(self, row: int) -> str | None:
        if row not in self._spelled:
            shape = self._types[row].shape
            self._spelled[row] = None if shape is None else "".join(f"{size}x" for size in shape)
        return self._spelled[row]

    def _argument_shapes(self, sequence: "array[int]") -> dict[str, tuple[int, ...] | None]:
        shapes: dict[str, tuple[int, ...] | None] = {}
        for call in set(sequence):
            if call >= 0:
                op = self._ops.calls[call]
                for value, row in zip(op.operands, op.operand_types, strict=False):
                    if value.startswith("%arg"):
                        shapes.setdefault(value, self._types[row].shape)
        return shapes

    def _takes(self, row: int, seen: dict[str, tuple[int, ...] | None]) -> bool:
        """Whether a dump's arguments have the shapes that the ops used."""
        declared = self._declared[row]
        return all(value in declared and declared[value] == shape for value, shape in seen.items())


def _has(packed: bytes, marks: Sequence[bytes | None], *, complete: bool) -> bool:
    """Whether a dump's ops are those of a run: all of them, or the first or last ones; unread ops match any."""
    if complete and None not in marks:
        return bool(marks) and packed == b"".join(mark for mark in marks if mark is not None)
    whole = [packed[at : at + MARK_BYTES] for at in range(0, len(packed), MARK_BYTES)]
    size = len(marks)
    if not size or size > len(whole) or (complete and size != len(whole)) or not any(marks):
        return False
    return any(
        all(mine is None or mine == other for mine, other in zip(marks, part, strict=True))
        for part in (whole[:size], whole[len(whole) - size :])
    )


def _equal_ops_at_start(packed: bytes, marks: Sequence[bytes | None]) -> int:
    """How many ops of a dump, from its first one on, are those of a run."""
    for number, mark in enumerate(marks):
        if mark is not None and packed[number * MARK_BYTES : (number + 1) * MARK_BYTES] != mark:
            return number
    return len(marks)


def _freeze_all(runs: Sequence[OpenRun], pass_of: dict[int, int], graph_of: dict[int, int]) -> list[ProgramRun]:
    frozen: list[ProgramRun] = []
    starts = sorted(graph_of)
    for number, run in enumerate(runs):
        parent = frozen[run.parent] if run.parent != NONE else None
        if parent is not None:
            pass_index, graph = parent.pass_index, parent.graph
        elif number in pass_of:
            pass_index, graph = pass_of[number], graph_of[number]
        else:  # a const-eval outside any pass prepares the weights of the graph that runs next
            at = bisect_right(starts, number)
            pass_index, graph = NONE, graph_of[starts[at]] if at < len(starts) else NONE
        frozen.append(freeze_run(run, pass_index=pass_index, graph=graph))
    return frozen
