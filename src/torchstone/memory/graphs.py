"""Program runs while they are read, and which of them are the same graph.

A program name does not identify a graph: every graph of a torch program is called `main`, and a log has no graph id.
The sequence of ops does, including their SSA names and types, because a graph prints the same text each time it runs.
Two runs with equal sequences are passes of one graph.
"""

from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Protocol

from torchstone.memory.mlir_text import head_of
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
    return ProgramRun(**asdict(run), pass_index=pass_index, graph=graph)


# --- Matching runs with graphs, and graphs with module dumps ---

_UNREAD = int(OpFlag.UNREAD)  # a plain int: it is compared a million times


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
    members = _group(runs, sequences, ops)
    graphs = tuple(
        Graph(name=runs[group[0]].name, runs=tuple(group), module=module)
        for group, module in zip(members, _find_modules(members, sequences, ops, types, modules), strict=True)
    )
    graph_of = {number: index for index, group in enumerate(members) for number in group}
    pass_of = {number: index for index, number in enumerate(outermost)}
    return tuple(_freeze_all(runs, pass_of, graph_of)), graphs


def own_sequence(runs: Sequence[OpenRun], number: int, ops: OpColumns) -> "array[int]":
    """The ops of a run without those of nested runs: call numbers, or op types below -1 where there is no text.

    Nested runs are left out because a const-eval runs in the first pass only: with its ops, the first pass would be a
    graph of its own. Equal op texts share a call number, so comparing numbers compares texts.
    """
    run = runs[number]
    calls = ops.call_of[run.first_op : run.end_op]
    has_nested = ops.program_of[run.first_op : run.end_op].count(number) < len(calls)
    if not has_nested and NONE not in calls:
        return calls
    rows = (row for row in range(run.first_op, run.end_op) if ops.program_of[row] == number)
    return array("i", (ops.call_of[row] if ops.call_of[row] != NONE else -2 - ops.op_type_of[row] for row in rows))


def _group(runs: Sequence[OpenRun], sequences: dict[int, "array[int]"], ops: OpColumns) -> list[list[int]]:
    """Group runs by their op sequences.

    Complete runs match exactly. A run that is cut off at its start or end (a failure, the edges of the log) joins the
    first graph whose sequence starts or ends with it. Longer ones go first, so that a run that matches no complete
    graph founds a group which shorter ones can join.
    """
    groups: dict[tuple[str, bytes], list[int]] = {}
    partial = []
    for number, sequence in sequences.items():
        if runs[number].complete:
            groups.setdefault((runs[number].name, sequence.tobytes()), []).append(number)
        else:
            partial.append(number)
    for number in sorted(partial, key=lambda number: -len(sequences[number])):
        key = next(
            (known for known in groups if known[0] == runs[number].name and _is_part(sequences[number], known[1])), None
        )
        groups.setdefault(key or (runs[number].name, sequences[number].tobytes()), []).append(number)
    merged = _merge_damaged(list(groups.values()), sequences, runs, ops)
    return sorted((sorted(group) for group in merged), key=lambda group: group[0])


def _is_part(sequence: "array[int]", whole: bytes) -> bool:
    part = sequence.tobytes()
    return whole.startswith(part) or whole.endswith(part)


def _merge_damaged(
    groups: list[list[int]], sequences: dict[int, "array[int]"], runs: Sequence[OpenRun], ops: OpColumns
) -> list[list[int]]:
    """Merge a pass into another that differs only where its lines could not be read: they are the same graph."""
    sound = [group for group in groups if not _is_damaged(runs[group[0]], ops)]
    for group in groups:
        if group in sound:
            continue
        like = sequences[group[0]]
        home = next((known for known in sound if _equal_but_for_damage(like, sequences[known[0]], ops)), None)
        if home is None:
            sound.append(group)
        else:
            home.extend(group)
    return sound


def _is_damaged(run: OpenRun, ops: OpColumns) -> bool:
    """Whether a line of the run could not be read, or only some of its ops have a text."""
    calls = ops.call_of[run.first_op : run.end_op]
    return any(flags & _UNREAD for flags in ops.flags_of[run.first_op : run.end_op]) or (
        0 < calls.count(NONE) < len(calls)
    )


def _equal_but_for_damage(damaged: "array[int]", sound: "array[int]", ops: OpColumns) -> bool:
    if len(damaged) != len(sound):
        return False
    return all(
        mine == other or mine < NONE or _is_shadow(ops.calls[mine], ops.calls[other] if other >= 0 else None)
        for mine, other in zip(damaged, sound, strict=True)
    )


def _is_shadow(damaged: OpCall, sound: OpCall | None) -> bool:
    """Whether the remains of a damaged op text can be that op."""
    return not damaged.result_types and (not damaged.name or (sound is not None and damaged.name == sound.name))


def _find_modules(
    members: list[list[int]],
    sequences: dict[int, "array[int]"],
    ops: OpColumns,
    types: Sequence[TensorType],
    modules: Sequence[CompiledModule],
) -> list[int]:
    """The module dump of each graph, NONE where it has none.

    A dump is printed at compile time and does not say which run it belongs to. First choice: the digest of its op heads
    (results, name, operands) equals that of a run; types and properties are printed differently in a dump, so they do
    not count. Second choice, for a graph whose text is damaged or incomplete: the argument shapes that its ops use.
    """
    by_heads = {module.heads: row for row, module in reversed(list(enumerate(modules))) if module.stage == "ttnn"}
    longest = [max((sequences[number] for number in group), key=len) for group in members]
    found = [by_heads.get(_digest(sequence, ops), NONE) for sequence in longest]
    for index, sequence in enumerate(longest):
        if found[index] == NONE:
            seen = _argument_shapes(sequence, ops, types)
            found[index] = _find_by_arguments(seen, types, modules, taken=found)
    return found


def _digest(sequence: "array[int]", ops: OpColumns) -> bytes:
    digest = blake2b(digest_size=16)
    for call in sequence:
        if call >= 0:
            digest.update(head_of(ops.calls[call]).encode())
    return digest.digest()


def _argument_shapes(
    sequence: "array[int]", ops: OpColumns, types: Sequence[TensorType]
) -> dict[str, tuple[int, ...] | None]:
    shapes: dict[str, tuple[int, ...] | None] = {}
    for call in sequence:
        if call >= 0:
            op = ops.calls[call]
            for value, row in zip(op.operands, op.operand_types, strict=False):
                if value.startswith("%arg"):
                    shapes.setdefault(value, types[row].shape)
    return shapes


def _find_by_arguments(
    seen: dict[str, tuple[int, ...] | None],
    types: Sequence[TensorType],
    modules: Sequence[CompiledModule],
    *,
    taken: Sequence[int],
) -> int:
    """The first unclaimed dump whose arguments have the shapes that the ops used; NONE if there is none."""
    for row, module in enumerate(modules):
        declared = {argument.value: types[argument.type].shape for argument in module.arguments}
        fits = all(value in declared and declared[value] == shape for value, shape in seen.items())
        if seen and fits and row not in taken:
            return row
    return NONE


def _freeze_all(runs: Sequence[OpenRun], pass_of: dict[int, int], graph_of: dict[int, int]) -> list[ProgramRun]:
    frozen: list[ProgramRun] = []
    for number, run in enumerate(runs):
        parent = frozen[run.parent] if run.parent != NONE else None
        if parent is not None:
            pass_index, graph = parent.pass_index, parent.graph
        elif number in pass_of:
            pass_index, graph = pass_of[number], graph_of[number]
        else:  # a const-eval outside any pass prepares the weights of the graph that runs next
            following = min((later for later in graph_of if later > number), default=None)
            pass_index, graph = NONE, NONE if following is None else graph_of[following]
        frozen.append(freeze_run(run, pass_index=pass_index, graph=graph))
    return frozen
