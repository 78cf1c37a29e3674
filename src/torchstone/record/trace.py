"""One capture of one model: everything that ran, in order, with the flow of data between op calls."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from msgspec import field
from msgspec.structs import replace

from torchstone.record.base import Document, Record, Schema
from torchstone.record.module import Module, ModuleCallTable, Source
from torchstone.record.op import OpCall, OpTable
from torchstone.record.repeats import (
    CallOrigins,
    Place,
    Repeat,
    Tables,
    Times,
    call_origins,
    expand,
    expand_tensors,
    times_of,
)
from torchstone.record.source_lines import SourceLines
from torchstone.record.tensor import TensorSpec, TensorTable
from torchstone.record.trace_consistency import check_trace
from torchstone.units import many

# --- The capture of a model: everything that ran, in order, with provenance ---

NOT_APPLIED = ": not applied, "  # in the note of an option that had no effect on the inputs


class Provenance(Record, frozen=True, kw_only=True):
    """What a reader needs to make the same trace again."""

    model: str  # as the user named it
    mode: str  # meta, fake, cpu, cuda
    mode_reason: str  # why this mode and not a faster one
    phase: str = ""  # prefill, decode, or "" where it does not apply
    inputs: str = ""  # origin of the inputs; assumptions are in Trace.notes
    versions: dict[str, str] = {}
    command: str = ""
    created: str = ""  # UTC, ISO 8601; the only field that differs between two equal runs
    reused_ops: int = 0  # op calls reused from an identical module call instead of run again


class Checkpoint(Record, frozen=True, kw_only=True):
    """How the weights of a configuration that was read from a file are stored."""

    dtype: str  # "bfloat16"; matrices that are quantized have another format
    quantization: str = ""  # in words, with what its format does not count; "": the configuration names none
    weights: str | None = None  # the number format of quantized matrices; None: not known
    only: tuple[str, ...] = ()  # patterns of the names of those matrices, as `Formats` has them
    file_bytes: int | None = None  # of the tensors in the weight files beside it; None: there are none


class Failure(Record, frozen=True, kw_only=True):
    """Where and how the forward pass ended early."""

    module: str
    op: str  # "" when Python code between ops raised
    arguments: str
    error: str
    location: str  # file and line of the model's own code


class EagerMemory(Record, frozen=True, kw_only=True):
    """Memory as the run held it: a tensor lives until Python and autograd let go of it."""

    before_bytes: int  # parameters, buffers and inputs, before the first op
    peak_bytes: int
    reserved_bytes: int | None = None  # by PyTorch's caching allocator of CUDA devices; None: not simulated


class Trace(Document, frozen=True, kw_only=True, dict=True, weakref=True, gc=True):
    """One capture of one model.

    What repeats is recorded once: the `recorded_` tables have the rows that ran, and `repeats` says where copies of
    them follow. `tensors`, `module_calls` and `ops` are the whole trace; copies are written out when one of them is
    first asked for. Stages that only count, sum or look at single rows need not do that: see the methods below.
    """

    schema: ClassVar[Schema] = Schema(kind="trace", version=2)
    provenance: Provenance
    modules: tuple[Module, ...]
    sources: dict[str, Source] = {}  # by class name
    recorded_tensors: TensorTable = field(name="tensors", default=TensorTable())
    recorded_calls: ModuleCallTable = field(name="module_calls", default=ModuleCallTable())
    recorded_ops: OpTable = field(name="ops", default=OpTable())
    repeats: tuple[Repeat, ...] = ()  # in order
    lines: SourceLines | None = None  # None: a trace from before they were recorded, or of a file
    failure: Failure | None = None
    eager_memory: EagerMemory | None = None  # None: not observed
    checkpoint: Checkpoint | None = None  # None: of the zoo, without a configuration, or from before it was recorded
    configuration: dict[str, int] = {}  # sizes of a transformers configuration, by the names that formulas have
    assumed: tuple[
        str, ...
    ] = ()  # values that decide which ops run, and that the model did not have: with their counts
    notes: tuple[str, ...] = ()  # assumptions, and what could not be captured

    def check(self) -> None:
        """Numbers of rows, modules, tensors and copies are in range, and columns of equal length."""
        check_trace(self)

    @property
    def recorded(self) -> Tables:
        """The rows that ran."""
        return Tables(tensors=self.recorded_tensors, module_calls=self.recorded_calls, ops=self.recorded_ops)

    @cached_property
    def _whole(self) -> Tables:
        return expand(self.recorded, self.repeats) if self.repeats else self.recorded

    @cached_property
    def _all_tensors(self) -> TensorTable:
        # Many questions are about tensors alone; those of a trace that is written out are not written out again.
        known = "_whole" in self.__dict__ or not self.repeats
        return self._whole.tensors if known else expand_tensors(self.recorded, self.repeats)

    @property
    def tensors(self) -> TensorTable:
        """All tensors."""
        return self._all_tensors

    @property
    def module_calls(self) -> ModuleCallTable:
        """All module calls, in the order they began."""
        return self._whole.module_calls

    @property
    def ops(self) -> OpTable:
        """All op calls, in order of execution."""
        return self._whole.ops

    @cached_property
    def size(self) -> Place:
        """How many op calls, module calls and tensors there are, copies included."""
        ran = Place(
            op=len(self.recorded_ops), call=len(self.recorded_calls), tensor=len(self.recorded_tensors), storage=0
        )
        for repeat in self.repeats:
            ran = ran.plus(repeat.length, repeat.copies)
        return ran

    @cached_property
    def times(self) -> Times:
        """How often each recorded row stands in the whole trace."""
        return times_of(self.recorded, self.repeats)

    @cached_property
    def call_origins(self) -> CallOrigins:
        """For each module call, its module and the recorded row that it is a copy of, or is."""
        return call_origins(self.recorded, self.repeats)

    @cached_property
    def recorded_call_rows(self) -> dict[int, int]:
        """The row in `recorded_calls` of each module call that ran."""
        numbers: list[int] = []
        end = 0  # of the copies so far
        for repeat in self.repeats:
            numbers += range(end, repeat.at.call)
            end = repeat.stop.call
        numbers += range(end, self.size.call)
        return {number: row for row, number in enumerate(numbers)}

    @property
    def recorded_tensor_numbers(self) -> list[int]:
        """The number in `tensors` of each row of `recorded_tensors`."""
        numbers: list[int] = []
        end = 0  # of the copies so far
        for repeat in self.repeats:
            numbers += range(end, repeat.at.tensor)
            end = repeat.stop.tensor
        return [*numbers, *range(end, self.size.tensor)]

    @cached_property
    def own_signatures(self) -> dict[int, list[tuple[int, int]]]:
        """The op signatures that each recorded module call calls itself, and how often; -1 is outside any call.

        A copy of a module call calls what the recorded one calls. An op call between the calls of equal layers is
        copied without its module call: that one calls it several times.
        """
        rows, times = self.recorded_call_rows, self.times
        found: dict[int, list[tuple[int, int]]] = {}
        for call, signature, copies in zip(
            self.recorded_ops.module_calls, self.recorded_ops.signature_of, times.ops, strict=True
        ):
            row = rows[call] if call >= 0 else -1
            found.setdefault(row, []).append((signature, copies // times.calls[row] if row >= 0 else copies))
        return found

    def signature_calls(self) -> Counter[int]:
        """How often each op signature was called, by its number."""
        counts: Counter[int] = Counter()
        for signature, times in zip(self.recorded_ops.signature_of, self.times.ops, strict=True):
            counts[signature] += times
        return counts

    def written_out(self) -> "Trace":
        """The same trace without repeats: every row is recorded."""
        tables = self._whole
        return replace(
            self,
            recorded_tensors=tables.tensors,
            recorded_calls=tables.module_calls,
            recorded_ops=tables.ops,
            repeats=(),
        )

    def held_spec(self, number: int) -> TensorSpec:
        """The spec of a tensor; copies are not written out for those that were there before the forward pass."""
        table = self.recorded_tensors
        first_copied = self.repeats[0].at.tensor if self.repeats else number + 1
        return table.specs[table.spec_of[number]] if 0 <= number < first_copied else self.tensors[number].spec

    def children(self, index: int) -> Iterator[int]:
        """The direct children of a module."""
        return iter(self._children.get(index, ()))

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for number, module in enumerate(self.modules):
            found.setdefault(module.parent, []).append(number)
        return found

    def module_path_of(self, call: OpCall) -> str:
        """The path of the innermost module that was running."""
        if call.module_call < 0:
            return ""
        return self.modules[self.module_calls.modules[call.module_call]].path

    def _repr_html_(self) -> str:
        """The modules with their classes, calls and ops, for a notebook."""
        from torchstone.record.notebook import html_table

        calls = Counter(self.call_origins.modules)
        rows = [
            (module.path or "(root)", module.class_name.rpartition(".")[2], str(calls[number]))
            for number, module in enumerate(self.modules)
        ]
        ended = (
            [f"forward() failed in {self.failure.module or 'the root'}: {self.failure.error}"] if self.failure else []
        )
        title = f"{self.provenance.model}: {many(len(self.modules), 'module')}, {many(self.size.op, 'op call')}"
        return html_table(title, ("module", "class", "calls"), rows, notes=[*ended, *self.assumed, *self.notes])


# --- Dataflow: which op call produced the data that another reads; views and in-place writes respected ---


NOT_AN_OP = -1  # the data was there before: a parameter, a buffer, an input or a constant


def producers(trace: Trace) -> Iterator[tuple[int, ...]]:
    """For each op call, for each of its input tensors: the call whose work it depends on last.

    That is the call that made the tensor, or a later one that wrote to the memory the tensor shares.
    """
    made_by = [NOT_AN_OP] * len(trace.tensors)
    written_by: dict[int, int] = {}
    storage_of = trace.tensors.storage_of
    ops = trace.ops
    for index, inputs in enumerate(ops.inputs):
        yield tuple(max(made_by[tensor], written_by.get(storage_of[tensor], NOT_AN_OP)) for tensor in inputs)
        for tensor in ops.writes.get(index, ()):
            written_by[storage_of[tensor]] = index
        for tensor in ops.outputs[index]:
            if made_by[tensor] == NOT_AN_OP and tensor not in inputs:
                made_by[tensor] = index
