"""One capture of one model: everything that ran, in order, with the flow of data between op calls."""

from collections import Counter
from collections.abc import Iterator

from torchstone.record.base import Record
from torchstone.record.module import Module, ModuleCallTable, Source
from torchstone.record.notebook import html_table
from torchstone.record.op import OpCall, OpTable
from torchstone.record.tensor import TensorTable

# --- The capture of a model: everything that ran, in order, with provenance ---


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
    reused_ops: int = 0  # op calls taken over from an equal module call instead of run again
    copies: dict[int, int] = {}  # module calls taken over: row of the call -> row of the equal one that ran


class Failure(Record, frozen=True, kw_only=True):
    """Where and how the forward pass ended early."""

    module: str
    op: str  # "" when Python code between ops raised
    arguments: str
    error: str
    location: str  # file and line of the model's own code


class Trace(Record, frozen=True, kw_only=True):
    """One capture of one model."""

    provenance: Provenance
    modules: tuple[Module, ...]
    sources: dict[str, Source] = {}  # by class name
    tensors: TensorTable = TensorTable()
    module_calls: ModuleCallTable = ModuleCallTable()
    ops: OpTable = OpTable()
    failure: Failure | None = None
    notes: tuple[str, ...] = ()  # assumptions, and what could not be captured

    def children(self, index: int) -> Iterator[int]:
        """The direct children of a module."""
        return (number for number, module in enumerate(self.modules) if module.parent == index)

    def module_path_of(self, call: OpCall) -> str:
        """The path of the innermost module that was running."""
        if call.module_call < 0:
            return ""
        return self.modules[self.module_calls.modules[call.module_call]].path

    def _repr_html_(self) -> str:
        """The modules with their classes, calls and ops, for a notebook."""
        calls = Counter(self.module_calls.modules)
        rows = [
            (module.path or "(root)", module.class_name.rpartition(".")[2], str(calls[number]))
            for number, module in enumerate(self.modules)
        ]
        ended = (
            [f"forward() failed in {self.failure.module or 'the root'}: {self.failure.error}"] if self.failure else []
        )
        title = f"{self.provenance.model}: {len(self.modules)} modules, {len(self.ops)} op calls"
        return html_table(title, ("module", "class", "calls"), rows, notes=[*ended, *self.notes])


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
