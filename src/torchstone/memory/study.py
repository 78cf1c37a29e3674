"""A timeline opened for analysis: columns unpacked once, readings and owners at hand."""

from functools import cached_property

from torchstone.memory.owners import Owners
from torchstone.memory.readings import Readings, readings_of
from torchstone.record.memory import NONE, MemoryTimeline, OpCall, ProgramRun


class Study:
    """What every analysis of a timeline shares."""

    def __init__(self, timeline: MemoryTimeline) -> None:
        self.timeline = timeline
        self.calls = timeline.ops.calls.values()
        self.programs = timeline.ops.programs.values()
        self.flags = timeline.ops.flags.values()

    @cached_property
    def readings(self) -> dict[str, Readings]:
        """By memory, in the order of the log."""
        return readings_of(self.timeline)

    @cached_property
    def owners(self) -> Owners:
        """Names of weights."""
        return Owners(self.timeline)

    @cached_property
    def banks(self) -> dict[str, int]:
        """The number of banks of each memory; 1 where it was never read."""
        return {memory.name: next(iter(memory.banks.values()), 1) for memory in self.timeline.memories}

    def call(self, op: int) -> OpCall | None:
        """The text of an op; None where the log has none."""
        return None if self.calls[op] == NONE else self.timeline.calls[self.calls[op]]

    def run(self, op: int) -> ProgramRun:
        """The program run that an op belongs to."""
        return self.timeline.programs[self.programs[op]]

    def outermost_run(self, op: int) -> int:
        """The row of the outermost run that an op belongs to."""
        run = self.programs[op]
        while self.timeline.programs[run].parent != NONE:
            run = self.timeline.programs[run].parent
        return run

    def name_of(self, op: int) -> str:
        """An op in one line: its text, or its type where that is all there is."""
        call = self.call(op)
        if call is not None and call.name:
            return str(call)
        op_type = self.timeline.ops.op_types.values()[op]
        return "an op that could not be read" if op_type == NONE else self.timeline.op_types[op_type]
