"""What was live before the first op of each pass: arguments, cached const-eval results, and what earlier passes left.

The first reading of a pass is the witness. Arguments of the graph and cached results are certain, since the pass reads
them. Everything else (weights of other graphs, outputs and inputs of earlier passes that the host may still refer to)
is a hypothesis: it is believed only if it accounts for the rest of the reading, to the resolution of the log.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from torchstone.memory.study import CachedResults, Study
from torchstone.record.memory import NONE, ProgramRun, Role
from torchstone.record.memory_findings import LiveBuffer, Origin

_PERSISTENT = (Origin.PARAMETER, Origin.CONSTANT, Origin.KV_CACHE)
_ROUNDING = 0.5001  # of a tick
_MOST_SINGLES = 64  # buffers that are tried one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStart:
    """The buffers live before the first op of an outermost run."""

    run: int
    cached: tuple[CachedResults, ...] = ()
    arguments: dict[str, LiveBuffer] = field(default_factory=dict)  # by SSA name
    others: tuple[LiveBuffer, ...] = ()  # of other graphs and earlier passes


@dataclass(slots=True)
class _Belief:
    """What is believed to be left from before, in one memory."""

    kept: list[LiveBuffer] = field(default_factory=list)  # outputs and inputs of earlier passes
    base_bytes: int = 0  # what no hypothesis ever accounted for


class PassStarts:
    """Works through the passes in order; each answer is kept."""

    def __init__(self, study: Study, outputs_of: Callable[[int], Iterable[LiveBuffer]]) -> None:
        self._study = study
        self._timeline = study.timeline
        self._outputs_of = outputs_of
        self._runs = [row for row, run in enumerate(self._timeline.programs) if run.parent == NONE]
        self._starts: dict[int, PassStart] = {}
        self._beliefs = {name: _Belief() for name in study.readings}
        self._arguments: dict[int, dict[str, LiveBuffer]] = {}
        self._done = 0
        self._settled = [found.from_op for found in study.owners.cached_results]
        self._first_ops = sorted(self._timeline.programs[graph.runs[0]].first_op for graph in self._timeline.graphs)
        self._certain: dict[tuple[int, int], dict[str, int]] = {}
        self._weights: dict[tuple[int, int], list[LiveBuffer]] = {}

    def of(self, run: int) -> PassStart:
        """The start of an outermost run."""
        while run not in self._starts and self._done < len(self._runs):
            number = self._runs[self._done]
            previous = self._runs[self._done - 1] if self._done else NONE
            self._starts[number] = self._begin(number, previous)
            self._done += 1
        return self._starts[run]

    def cached_before(self, op: int) -> tuple[CachedResults, ...]:
        """The const-eval results on the device before an op; under one key the newest."""
        count = bisect_right(self._settled, op)
        newest = {found.key: found for found in self._study.owners.cached_results[:count]}
        return tuple(newest.values())

    # --- One pass ---

    def _begin(self, number: int, previous: int) -> PassStart:
        run = self._timeline.programs[number]
        arguments = self._arguments_of(run) if run.role is Role.FORWARD else {}
        cached = self.cached_before(run.first_op)
        certain = self._certain_bytes(run, cached, arguments)
        others: list[LiveBuffer] = []
        for memory in self._study.readings:
            others += self._explain_rest(memory, run, previous, certain.get(memory, 0))
        return PassStart(run=number, cached=cached, arguments=arguments, others=tuple(others))

    def _certain_bytes(
        self, run: ProgramRun, cached: Sequence[CachedResults], arguments: dict[str, LiveBuffer]
    ) -> dict[str, int]:
        key = (run.graph, bisect_right(self._settled, run.first_op))
        if run.role is not Role.FORWARD or key not in self._certain:
            total: dict[str, int] = {}
            for memory, size in chain(
                ((self._memory_of(one), one.bank_bytes) for one in arguments.values()),
                ((memory, size) for found in cached for memory, size in self._sizes(found)),
            ):
                total[memory] = total.get(memory, 0) + size
            if run.role is not Role.FORWARD:
                return total
            self._certain[key] = total
        return self._certain[key]

    def _sizes(self, found: CachedResults) -> Iterator[tuple[str, int]]:
        for row in found.call.result_types:
            buffer = self._timeline.types[row].buffer
            if buffer is not None and buffer.memory in self._study.readings:
                yield buffer.memory, self._study.bank_bytes(buffer)

    def _explain_rest(self, memory: str, run: ProgramRun, previous: int, certain: int) -> list[LiveBuffer]:
        """The hypothesis that accounts for what is left of the first reading; none where no one does."""
        belief = self._beliefs[memory]
        reading = self._first_reading(memory, run)
        weights = [one for one in self._other_weights(run, later=False) if self._memory_of(one) == memory]
        # without the arguments of its own graph, what is left may be these: no weights of graphs to come are believed
        is_known = run.graph == NONE or bool(self._study.owners.registry(run.graph))
        future = self._other_weights(run, later=True) if is_known else []
        later = [one for one in future if self._memory_of(one) == memory]
        ended = self._left_by(previous, memory)
        belief.kept = [one for one in belief.kept if not self._is_replaced(one, run)]
        if reading is None:
            belief.kept = []
            return weights
        tick = (1 << 20) / self._timeline.ticks_per_mib
        rest = reading * tick - certain
        near: tuple[float, list[LiveBuffer], list[LiveBuffer], int] | None = None
        for believed, kept, base in self._hypotheses(belief, weights, later, ended):
            total = base + sum(one.bank_bytes for one in believed) + sum(one.bank_bytes for one in kept)
            far = abs(rest - total) / tick
            is_first = far <= (1 if base else _ROUNDING)  # memory without an owner was itself read from a reading
            if is_first or near is None or far < near[0]:
                near = far, believed, kept, base
            if is_first:
                break
        if near is not None and near[0] <= 1:
            _, believed, belief.kept, belief.base_bytes = near
            return [*believed, *belief.kept]
        named = sum(one.bank_bytes for one in weights)
        believed = weights if named <= rest + tick else []
        belief.kept = []
        belief.base_bytes = max(0, round(rest) - (named if believed else 0))
        return believed

    def _hypotheses(
        self, belief: _Belief, weights: list[LiveBuffer], later: list[LiveBuffer], ended: list[LiveBuffer]
    ) -> Iterator[tuple[list[LiveBuffer], list[LiveBuffer], int]]:
        """Other graphs' weights, buffers kept from before, and memory of unknown owners; the least change first."""
        kept = belief.kept
        outputs = [one for one in ended if one.origin is Origin.OUTPUT]
        inputs = [one for one in ended if one.origin is not Origin.OUTPUT]
        added: list[list[LiveBuffer]] = [[], outputs, inputs, [*outputs, *inputs]]
        sets = [[*kept, *some] for some in added]  # a host that kept something before goes on keeping it
        sets += [[*kept, one] for one in ended[:_MOST_SINGLES]]
        sets += added
        sets += [[one for one in kept if one is not gone] for gone in kept[:_MOST_SINGLES]]
        bases = dict.fromkeys((belief.base_bytes, 0))
        for base in bases:
            for believed in (weights, [*weights, *later], []):
                for one in sets:
                    yield believed, one, base

    def _first_reading(self, memory: str, run: ProgramRun) -> int | None:
        if run.first_op >= run.end_op:
            return None
        state = self._study.readings[memory].of_op(run.first_op)
        return None if state is None else state.allocated

    # --- Candidates ---

    def _arguments_of(self, run: ProgramRun) -> dict[str, LiveBuffer]:
        """The arguments on the device: those in the registry, and those that the ops of this graph read.

        The registry comes from a module dump, which a log may lack; the operands alone still give sizes.
        """
        if run.graph in self._arguments:
            return self._arguments[run.graph]
        owners, study = self._study.owners, self._study
        types = {value: one.type for value, one in owners.registry(run.graph).items()}
        for number in self._timeline.graphs[run.graph].runs[:1] + self._timeline.graphs[run.graph].runs[-1:]:
            for call in self._own_calls(number):
                op = self._timeline.calls[call]
                for value, row in zip(op.operands, op.operand_types, strict=False):
                    if value.startswith("%arg"):
                        buffer = self._timeline.types[row].buffer
                        if buffer is None or types.setdefault(value, row) == row:
                            continue
                        if self._timeline.types[types[value]].buffer is None:
                            types[value] = row  # the dump had no layouts
        found = {}
        for value, row in sorted(types.items()):
            origin, name = owners.argument(run.graph, value)
            live = make_buffer(study, origin, name, value, row)
            if live is not None:
                found[value] = live
        self._arguments[run.graph] = found
        return found

    def _own_calls(self, number: int) -> set[int]:
        run = self._timeline.programs[number]
        rows = range(run.first_op, run.end_op)
        return {self._study.calls[op] for op in rows if self._study.programs[op] == number} - {NONE}

    def _other_weights(self, run: ProgramRun, *, later: bool) -> list[LiveBuffer]:
        """Weights and caches of other graphs that ran before, or that run later: they may be there already.

        Two graphs of one model (prefill and decode) share weights, so an argument with a known name is not added twice.
        """
        count = len(self._first_ops) if later else bisect_right(self._first_ops, run.first_op)
        key = (run.graph if run.role is Role.FORWARD else NONE, -1 if later else count)
        if key not in self._weights or later:
            own = self._arguments_of(run).values() if run.role is Role.FORWARD else ()
            known = {(one.owner, one.bank_bytes) for one in own}
            if later:
                known |= {(one.owner, one.bank_bytes) for one in self._other_weights(run, later=False)}
            found = []
            for graph in self._timeline.graphs:
                first = self._timeline.programs[graph.runs[0]]
                if (first.first_op > run.first_op) != later:
                    continue
                for one in self._arguments_of(first).values():
                    if one.origin in _PERSISTENT and (one.owner, one.bank_bytes) not in known:
                        known.add((one.owner, one.bank_bytes))
                        found.append(one)
            self._weights[key] = found
        return self._weights[key]

    def _left_by(self, previous: int, memory: str) -> list[LiveBuffer]:
        """What the pass before may have left: its outputs, and its inputs."""
        if previous == NONE or self._timeline.programs[previous].role is not Role.FORWARD:
            return []
        run = self._timeline.programs[previous]
        inputs = [one for one in self._arguments_of(run).values() if one.origin is Origin.INPUT]
        outputs = self._outputs_of(previous) if run.complete else ()
        return [one for one in chain(outputs, inputs) if self._memory_of(one) == memory]

    def _is_replaced(self, one: LiveBuffer, run: ProgramRun) -> bool:
        """Whether an input kept from before is an argument of this pass: it is the same buffer, or its successor."""
        if one.origin is Origin.OUTPUT or run.role is not Role.FORWARD:
            return False
        mine = self._arguments_of(run).get(one.value)
        return mine is not None and (mine.owner, mine.type) == (one.owner, one.type)

    def _memory_of(self, one: LiveBuffer) -> str:
        buffer = self._timeline.types[one.type].buffer
        return buffer.memory if buffer is not None else ""


def make_buffer(
    study: Study, origin: Origin, owner: str, value: str, type_row: int, *, op: int = NONE
) -> LiveBuffer | None:
    """A live buffer of a tensor type; None for a type that is not in a memory with readings."""
    tensor = study.timeline.types[type_row]
    buffer = tensor.buffer
    if buffer is None or buffer.memory not in study.readings:
        return None
    return LiveBuffer(
        origin=origin,
        owner=owner,
        value=value,
        op=op,
        type=type_row,
        bank_bytes=study.bank_bytes(buffer),
        padded_bytes=buffer.padded_bytes,
        logical_bytes=tensor.logical_bytes,
    )
