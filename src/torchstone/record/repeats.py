"""Repetition in a trace: rows that were recorded once, and where copies of them follow.

All numbers in a trace (of op calls, module calls, tensors and storages) count the copies, too: they are the numbers
that a trace without repetition has. So a recorded row means the same whether copies are written out or not, and writing
them out (`expand`) is copying rows with other numbers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from torchstone.record.base import Record
from torchstone.record.module import ModuleCallTable
from torchstone.record.op import OpTable
from torchstone.record.tensor import ExternalTensor, TensorTable


class Place(Record, frozen=True, kw_only=True, array_like=True):
    """A position in the tables: how many rows of each stand before it."""

    op: int
    call: int
    tensor: int
    storage: int

    def precedes(self, other: "Place") -> bool:
        """Whether no row of any table stands between the other position and this one."""
        return (
            self.op <= other.op
            and self.call <= other.call
            and self.tensor <= other.tensor
            and self.storage <= other.storage
        )

    def plus(self, other: "Place", times: int = 1) -> "Place":
        """The position a number of steps further on."""
        return Place(
            op=self.op + other.op * times,
            call=self.call + other.call * times,
            tensor=self.tensor + other.tensor * times,
            storage=self.storage + other.storage * times,
        )


class Repeat(Record, frozen=True, kw_only=True):
    """Copies of a stretch of rows, one after another.

    Copy number i (from 0) has its own tensors and storages where the stretch has its own. A tensor t that the stretch
    uses and did not make is `first + i * step` in the copy, for the triple (t, first, step) in `external`: the weights
    of equal layers are numbered at equal distances, and so are the outputs of one copy that the next one reads.
    """

    start: Place  # the stretch that is copied
    end: Place
    at: Place  # the first copy
    copies: int = 1
    parent: int = -1  # the module call around the copies
    module_shift: int = 0  # from the modules of the stretch to those of the first copy
    module_step: int = 0  # and from copy to copy
    external: tuple[tuple[int, int, int], ...] = ()
    site: int = -1  # the call site of all that is in the copies; -1: as in the stretch

    @property
    def length(self) -> Place:
        """Rows of one copy."""
        return self.end.plus(self.start, -1)

    @property
    def stop(self) -> Place:
        """The position after the last copy."""
        return self.at.plus(self.length, self.copies)


class Tables(Record, frozen=True, kw_only=True):
    """The three tables of a trace."""

    tensors: TensorTable
    module_calls: ModuleCallTable
    ops: OpTable


def expand(tables: Tables, repeats: Sequence[Repeat]) -> Tables:
    """The tables with every copy written out."""
    growing = Expansion(tables)
    for repeat in repeats:
        growing.add_copies(repeat)
    return growing.finish()


def expand_tensors(tables: Tables, repeats: Sequence[Repeat]) -> TensorTable:
    """The table of tensors with every copy written out; their calls, most of the work, are not."""
    growing = Expansion(tables, calls=False)
    for repeat in repeats:
        growing.add_copies(repeat)
    return growing.finish().tensors


class Gap(msgspec.Struct, frozen=True):
    """Numbers of copies that are left out; each is replaced by the one at its place in the copy before them."""

    start: int
    stop: int
    step: int  # numbers of one copy

    def replaced(self, number: int) -> int:
        """The number that stands in for one that is left out."""
        return self.start - self.step + (number - self.start) % self.step


class Numbering:
    """New numbers after some were left out."""

    def __init__(self) -> None:
        self._gaps: list[Gap] = []
        self._starts: list[int] = []
        self._shifts: list[int] = [0]

    def leave_out(self, start: int, stop: int, step: int) -> None:
        """Leave out a stretch after all that were left out so far."""
        if start < stop:
            self._gaps.append(Gap(start, stop, step))
            self._starts.append(start)
            self._shifts.append(self._shifts[-1] + stop - start)

    def __call__(self, number: int) -> int:
        """The new number of an old one."""
        passed = bisect_right(self._starts, number)
        if passed and number < self._gaps[passed - 1].stop:
            return self._gaps[passed - 1].replaced(number) - self._shifts[passed - 1]
        return number - self._shifts[passed]

    def of_rows(self, rows: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
        """Rows of numbers, renumbered."""
        return [tuple(map(self, row)) for row in rows] if self._gaps else rows

    def _concerns(self, column: Sequence[int]) -> bool:
        return bool(self._gaps) and max(column, default=-1) >= self._starts[0]

    def of_column(self, column: Sequence[int]) -> Sequence[int]:
        """A column of numbers, renumbered; -1 stays."""
        return [self(number) for number in column] if self._concerns(column) else column


class Expansion:
    """Tables that grow in the order of the trace: recorded rows, and copies of rows before them.

    Of a repeat that is to be left out, only the first and the last copy are written. Everything is numbered as if the
    others had never been; what speaks of their tensors gets those of the first copy. Without `calls`, only the tensors
    are written.
    """

    def __init__(self, tables: Tables, left_out: Sequence[Repeat] = (), *, calls: bool = True) -> None:
        self._tables = tables
        self._with_calls = calls
        self._left_out = {repeat.at.call for repeat in left_out}
        self._taken = Place(op=0, call=0, tensor=0, storage=0)  # recorded rows so far; storages have no rows
        self._here = self._taken  # the position in the trace
        self._op, self._call, self._tensor, self._storage = (Numbering() for _ in range(4))
        self._signature_of: list[int] = []
        self._inputs: list[tuple[int, ...]] = []
        self._outputs: list[tuple[int, ...]] = []
        self._op_calls: list[int] = []
        self._writes: dict[int, tuple[int, ...]] = {}
        self._recorded_writes = sorted(tables.ops.writes)
        self._calls = _Calls()
        self._spec_of: list[int] = []
        self._storage_of: list[int] = []
        self._external: list[ExternalTensor] = []
        self._external_numbers: list[int] = []
        for repeat in left_out:
            self._leave_out(repeat)

    def add_recorded(self, until: Place | None = None) -> None:
        """Take recorded rows over up to a position; without one, all that are left."""
        start, tables = self._taken, self._tables
        if until is None:
            end = Place(
                op=len(tables.ops), call=len(tables.module_calls), tensor=len(tables.tensors), storage=start.storage
            )
        else:
            end = start.plus(until).plus(self._here, -1)
        self._add_recorded_tensors(slice(start.tensor, end.tensor))
        if self._with_calls:
            self._add_recorded_ops(slice(start.op, end.op))
            self._add_recorded_calls(slice(start.call, end.call))
        self._taken = end
        if until is not None:
            self._here = until

    def _add_recorded_tensors(self, rows: slice) -> None:
        table = self._tables.tensors
        first, last = self._here.tensor, self._here.tensor + rows.stop - rows.start
        self._spec_of += table.spec_of[rows]
        self._storage_of += self._storage.of_column(table.storage_of[rows])
        external = table.external
        begin = bisect_left(external, first, key=_tensor_of)
        taken = external[begin : bisect_left(external, last, key=_tensor_of)]
        numbers = self._tensor.of_column([one.tensor for one in taken])
        for one, number in zip(taken, numbers, strict=True):
            self._add_external(one, number)

    def _add_external(self, like: ExternalTensor, tensor: int) -> None:
        changed = like if like.tensor == tensor else msgspec.structs.replace(like, tensor=tensor)
        self._external.append(changed)
        self._external_numbers.append(tensor)

    def _add_recorded_ops(self, rows: slice) -> None:
        ops, first = self._tables.ops, self._here.op
        written = self._recorded_writes
        for row in written[bisect_left(written, first) : bisect_left(written, first + rows.stop - rows.start)]:
            self._writes[self._op(row)] = tuple(map(self._tensor, ops.writes[row]))
        self._signature_of += ops.signature_of[rows]
        self._inputs += self._tensor.of_rows(ops.inputs[rows])
        self._outputs += self._tensor.of_rows(ops.outputs[rows])
        self._op_calls += self._call.of_column(ops.module_calls[rows])

    def _add_recorded_calls(self, rows: slice) -> None:
        table, calls = self._tables.module_calls, self._calls
        calls.signature_of += table.signature_of[rows]
        calls.modules += table.modules[rows]
        calls.parents += self._call.of_column(table.parents[rows])
        calls.inputs += self._tensor.of_rows(table.inputs[rows])
        calls.outputs += self._tensor.of_rows(table.outputs[rows])
        calls.first_ops += self._op.of_column(table.first_ops[rows])
        calls.end_ops += self._op.of_column(table.end_ops[rows])

    def _leave_out(self, repeat: Repeat) -> None:
        length = repeat.length
        begin, end = repeat.at.plus(length), repeat.at.plus(length, repeat.copies - 1)
        self._op.leave_out(begin.op, end.op, length.op)
        self._call.leave_out(begin.call, end.call, length.call)
        self._tensor.leave_out(begin.tensor, end.tensor, length.tensor)
        self._storage.leave_out(begin.storage, end.storage, length.storage)

    def add_copies(self, repeat: Repeat) -> None:
        """Write the copies out, or the first and the last one of those that were to be left out."""
        self.add_recorded(repeat.at)
        if repeat.at.call in self._left_out:
            self._add_copy(repeat, 0)
            self._here = repeat.at.plus(repeat.length, repeat.copies - 1)
            self._add_copy(repeat, repeat.copies - 1)
        else:
            for number in range(repeat.copies):
                self._add_copy(repeat, number)

    def tensor_number(self, number: int) -> int:
        """The number of a tensor in the tables that grow."""
        return self._tensor(number)

    def renumbered(self, place: Place) -> Place:
        """A position of the trace in the tables that grow."""
        return Place(
            op=self._op(place.op),
            call=self._call(place.call),
            tensor=self._tensor(place.tensor),
            storage=self._storage(place.storage),
        )

    def _add_copy(self, repeat: Repeat, number: int) -> None:
        first = self._tensor(repeat.start.tensor)
        shift = len(self._spec_of) - first
        renumber = self._tensor.of_column
        there = renumber([tensor for tensor, _, _ in repeat.external])
        instead = renumber([start + number * step for _, start, step in repeat.external])
        external = dict(zip(there, instead, strict=True))

        def moved(rows: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
            return [tuple([one + shift if one >= first else external[one] for one in row]) for row in rows]

        here = self._here
        self._copy_tensors(repeat, shift, external)
        if self._with_calls:
            self._copy_ops(repeat, moved)
            self._copy_calls(repeat, number, moved)
        self._here = here.plus(repeat.length)

    def _copy_tensors(self, repeat: Repeat, shift: int, external: dict[int, int]) -> None:
        length, start = repeat.length, self._tensor(repeat.start.tensor)
        rows = slice(start, start + length.tensor)
        first = self._storage(repeat.start.storage)
        storage_shift = self._storage(self._here.storage) - first
        shared = {self._storage_of[old]: self._storage_of[new] for old, new in external.items()}
        self._spec_of += self._spec_of[rows]
        self._storage_of += [
            storage + storage_shift if storage >= first else shared[storage] for storage in self._storage_of[rows]
        ]
        numbers = self._external_numbers
        for place in range(bisect_left(numbers, rows.start), bisect_left(numbers, rows.stop)):
            self._add_external(self._external[place], numbers[place] + shift)

    def _copy_ops(self, repeat: Repeat, moved: "_MovedRows") -> None:
        start, here = self._op(repeat.start.op), len(self._signature_of)
        rows = slice(start, start + repeat.length.op)
        first_call = self._call(repeat.start.call)
        call_shift, parent = len(self._calls.modules) - first_call, self._call(repeat.parent)
        if self._writes:
            for row in range(rows.start, rows.stop):
                if row in self._writes:
                    (self._writes[row + here - start],) = moved([self._writes[row]])
        self._signature_of += self._signature_of[rows]
        self._inputs += moved(self._inputs[rows])
        self._outputs += moved(self._outputs[rows])
        self._op_calls += [call + call_shift if call >= first_call else parent for call in self._op_calls[rows]]

    def _copy_calls(self, repeat: Repeat, number: int, moved: "_MovedRows") -> None:
        calls, start = self._calls, self._call(repeat.start.call)
        shift, parent = len(calls.modules) - start, self._call(repeat.parent)
        op_shift = len(self._signature_of) - repeat.length.op - self._op(repeat.start.op)
        module_shift = repeat.module_shift + number * repeat.module_step
        rows = slice(start, start + repeat.length.call)
        calls.signature_of += calls.signature_of[rows]
        calls.modules += [module + module_shift for module in calls.modules[rows]]
        calls.parents += [call + shift if call >= start else parent for call in calls.parents[rows]]
        calls.inputs += moved(calls.inputs[rows])
        calls.outputs += moved(calls.outputs[rows])
        calls.first_ops += [op + op_shift for op in calls.first_ops[rows]]
        calls.end_ops += [op + op_shift for op in calls.end_ops[rows]]

    def finish(self) -> Tables:
        """Take over what is left, and give the tables."""
        self.add_recorded()
        tables, calls = self._tables, self._calls
        left = tables.tensors.left
        return Tables(
            tensors=TensorTable(
                specs=tables.tensors.specs,
                spec_of=tuple(self._spec_of),
                storage_of=tuple(self._storage_of),
                external=tuple(self._external),
                gradients=tables.tensors.gradients,
                left=None if left is None else {name: self._tensor(number) for name, number in left.items()},
            ),
            module_calls=ModuleCallTable(
                signatures=tables.module_calls.signatures,
                signature_of=tuple(calls.signature_of),
                modules=tuple(calls.modules),
                parents=tuple(calls.parents),
                inputs=tuple(calls.inputs),
                outputs=tuple(calls.outputs),
                first_ops=tuple(calls.first_ops),
                end_ops=tuple(calls.end_ops),
            ),
            ops=OpTable(
                signatures=tables.ops.signatures,
                signature_of=tuple(self._signature_of),
                inputs=tuple(self._inputs),
                outputs=tuple(self._outputs),
                module_calls=tuple(self._op_calls),
                writes=self._writes,
                forward_calls=self._op(tables.ops.forward_calls),
            ),
        )


_MovedRows = Callable[[Sequence[tuple[int, ...]]], list[tuple[int, ...]]]


def _tensor_of(external: ExternalTensor) -> int:
    return external.tensor


class _Calls:
    """Columns of module calls."""

    def __init__(self) -> None:
        self.signature_of: list[int] = []
        self.modules: list[int] = []
        self.parents: list[int] = []
        self.inputs: list[tuple[int, ...]] = []
        self.outputs: list[tuple[int, ...]] = []
        self.first_ops: list[int] = []
        self.end_ops: list[int] = []


class Times(Record, frozen=True, kw_only=True):
    """How often each recorded row stands in the whole trace, itself included."""

    ops: list[int]
    calls: list[int]


def times_of(tables: Tables, repeats: Sequence[Repeat]) -> Times:
    """Count from the last repeat to the first: one that lies in a stretch that is copied is itself copied with it."""
    ops, calls = [0] * (len(tables.ops) + 1), [0] * (len(tables.module_calls) + 1)
    ops[0] = calls[0] = 1
    recorded = _Recorded(repeats)
    starts = [repeat.at.call for repeat in repeats]
    weights = [1] * len(repeats)
    for number in range(len(repeats) - 1, -1, -1):
        repeat = repeats[number]
        added = weights[number] * repeat.copies
        begin, end = recorded.rows_before(repeat.start), recorded.rows_before(repeat.end)
        ops[begin.op] += added
        ops[end.op] -= added
        calls[begin.call] += added
        calls[end.call] -= added
        for inner in range(bisect_left(starts, repeat.start.call), bisect_left(starts, repeat.end.call)):
            weights[inner] += added
    return Times(ops=list(accumulate(ops[:-1])), calls=list(accumulate(calls[:-1])))


class _Recorded:
    """How many recorded rows stand before a position of the trace."""

    def __init__(self, repeats: Sequence[Repeat]) -> None:
        self._repeats = repeats
        self._starts = [repeat.at.call for repeat in repeats]
        self._copied = [Place(op=0, call=0, tensor=0, storage=0)]
        for repeat in repeats:
            self._copied.append(self._copied[-1].plus(repeat.length, repeat.copies))

    def rows_before(self, place: Place) -> Place:
        """A position inside copies counts as one before them."""
        passed = bisect_left(self._starts, place.call)
        if passed and place.call < self._repeats[passed - 1].stop.call:
            return self._repeats[passed - 1].at.plus(self._copied[passed - 1], -1)
        return place.plus(self._copied[passed], -1)


class CallOrigins(Record, frozen=True, kw_only=True):
    """For each module call of the whole trace, its module and the recorded row that it is a copy of, or is."""

    modules: list[int]
    rows: list[int]


def call_origins(tables: Tables, repeats: Sequence[Repeat]) -> CallOrigins:
    """Follow the copies of module calls alone: there are far fewer of them than op calls."""
    recorded = tables.module_calls.modules
    modules: list[int] = []
    rows: list[int] = []
    taken = 0
    for repeat in repeats:
        new = repeat.at.call - len(modules)
        modules += recorded[taken : taken + new]
        rows += range(taken, taken + new)
        taken += new
        copied = modules[repeat.start.call : repeat.end.call]
        for number in range(repeat.copies):
            shift = repeat.module_shift + number * repeat.module_step
            modules += [module + shift for module in copied]
        rows += rows[repeat.start.call : repeat.end.call] * repeat.copies
    return CallOrigins(modules=[*modules, *recorded[taken:]], rows=[*rows, *range(taken, len(recorded))])
