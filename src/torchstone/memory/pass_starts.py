"""What was live before the first op of each pass: arguments, cached const-eval results, and what earlier passes left.

Arguments of the graph and the cached results that it loads are certain, since the pass reads them. Everything else
(weights of other graphs, outputs and inputs of earlier passes that the host may still refer to) is searched for, with
the first reading of each pass as the witness.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import msgspec

from torchstone.memory.host_states import (
    CACHE,
    CACHED,
    NAME,
    WEIGHT,
    Boundary,
    Explanation,
    HostSearch,
    HostState,
    Interval,
    Item,
    Leftover,
    Sizes,
)
from torchstone.memory.study import CachedResults, Study
from torchstone.record.memory import NONE, ArgumentKind, OpFlag, ProgramRun, Role
from torchstone.record.memory_findings import LiveBuffer, Origin

_PERSISTENT = (Origin.PARAMETER, Origin.CONSTANT, Origin.KV_CACHE)
_ROUNDING = 0.5001  # of a tick


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStart:
    """The buffers live before the first op of an outermost run."""

    run: int
    cached: tuple[CachedResults, ...] = ()
    arguments: dict[str, LiveBuffer] = field(default_factory=dict)  # by SSA name
    others: tuple[LiveBuffer, ...] = ()  # of other graphs and earlier passes
    disputed: tuple[LiveBuffer, ...] = ()  # as `others`; other explanations that fit all readings have none of these
    disputed_keys: frozenset[str] = frozenset()  # of cached results
    unnamed: str = ""  # why memory may be left that belongs to none of these


class PassStarts:
    """The start of every outermost run."""

    def __init__(
        self,
        study: Study,
        outputs_of: Callable[[int], Iterable[LiveBuffer]],
        change_of: Callable[[int, PassStart], dict[str, int]],
    ) -> None:
        self._study = study
        self._timeline = study.timeline
        self._outputs_of, self._change_of = outputs_of, change_of
        self._runs = [row for row, run in enumerate(self._timeline.programs) if run.parent == NONE]
        self._memories = tuple(study.readings)
        self._tick = (1 << 20) / self._timeline.ticks_per_mib
        self._arguments: dict[int, dict[str, LiveBuffer]] = {NONE: {}}  # a const-eval after the last pass has none
        self._items: dict[Item, LiveBuffer] = {}  # the weights
        self._argument_items: dict[int, dict[Item, str]] = {}
        self._settled = [found.from_op for found in study.owners.cached_results]
        self._starts: dict[int, PassStart] = {}
        self._output_sizes: set[tuple[int, Sizes]] = set()  # by graph: an output of an input's size may be the next one

    def of(self, run: int) -> PassStart:
        """The start of an outermost run."""
        if run not in self._starts:
            self._starts[run] = self._start(self._boundary_of[run], self._explanations[run])
        return self._starts[run]

    def cached_before(self, op: int) -> tuple[CachedResults, ...]:
        """The const-eval results that were on the device before an op, or still are; under one key the newest."""
        count = bisect_right(self._settled, op)
        newest = {found.key: found for found in self._study.owners.cached_results[:count]}
        return tuple(newest.values())

    # --- The search ---

    @cached_property
    def _boundary_of(self) -> dict[int, Boundary]:
        made = self._made_by_pass()
        found = {}
        for previous, number in pairwise([NONE, *self._runs]):
            found[number] = self._boundary(number, previous, made)
        return found

    @cached_property
    def _search(self) -> HostSearch:
        return HostSearch(tuple(self._boundary_of.values()), self._sizes_of_item, self._tick, self._grown)

    @cached_property
    def _explanations(self) -> dict[int, Explanation]:
        return self._search.explanations()

    def _start(self, boundary: Boundary, explanation: Explanation) -> PassStart:
        run = self._timeline.programs[boundary.run]
        arguments = self._arguments_of(run) if run.role is Role.FORWARD else {}
        own = self._items_of(run)
        best, certain = explanation.best, explanation.certain
        weights = [item for item in sorted(best.live) if item[0] in (WEIGHT, CACHE) and item not in own]
        cached = tuple(one for one in self.cached_before(run.first_op) if (CACHED, one.key, 0, 0) in best.live)
        others = [self._items[item] for item in weights if item in certain]
        disputed = [self._items[item] for item in weights if item not in certain]
        unsure: list[LiveBuffer] = []
        for key, (count, sizes) in best.kept.items():
            is_fed = key[1].origin is Origin.INPUT and (key[0][0], sizes) in self._output_sizes
            is_guess = explanation.is_erratic and (is_fed or key[1].bank_bytes < self._tick)
            agreed = 0 if is_guess else explanation.count(key)
            others += [key[1]] * agreed
            unsure += [key[1]] * (count - agreed)
        if unsure:
            alike = self._outputs_of_any_graph(explanation, unsure)
            others += alike.values()
            disputed += [one for number, one in enumerate(unsure) if number not in alike]
        return PassStart(
            run=boundary.run,
            cached=cached,
            arguments=arguments,
            others=tuple(others),
            disputed=tuple(disputed),
            disputed_keys=frozenset(one.key for one in cached if (CACHED, one.key, 0, 0) not in certain),
            unnamed=self._why_unnamed(boundary, best),
        )

    def _outputs_of_any_graph(self, explanation: Explanation, unsure: list[LiveBuffer]) -> dict[int, LiveBuffer]:
        """Of buffers that explanations differ on, the outputs for which each has one as large, if of another graph."""
        states = (explanation.best, *explanation.rivals)
        outputs = [
            [(self._sum([one]), one) for one in state.others() if one.origin is Origin.OUTPUT] for state in states
        ]
        counts = [Counter(sizes for sizes, _ in some) for some in outputs]
        left = {sizes: min(count[sizes] for count in counts) for sizes in counts[0]}
        mine = {index: self._sum([one]) for index, one in enumerate(unsure) if one.origin is Origin.OUTPUT}
        for sizes, number in Counter(mine.values()).items():
            left[sizes] -= counts[0][sizes] - number  # those are listed
        found = {}
        for index, sizes in mine.items():
            if left[sizes] > 0:
                left[sizes] -= 1
                owners = {one.owner.partition(":")[0] for some in outputs for other, one in some if other == sizes}
                found[index] = msgspec.structs.replace(unsure[index], owner=" or ".join(sorted(owners)))
        return found

    def _why_unnamed(self, boundary: Boundary, state: HostState) -> str:
        """The reason for memory without an owner, as far as the log shows when it came."""
        if not boundary.has_registry:
            graph = self._timeline.programs[boundary.run].graph
            return f"the log has no module dump of graph {graph}, so arguments that none of its ops reads have no line"
        first = self._boundary_of[self._runs[0]]
        while state.parent is not None and state.run != first.run:
            state = state.parent
        if any(high > 0 for _, high in state.base):
            return "memory was allocated before the first pass in the log"
        return "memory came between two passes, or while one ran, and no line names it"

    def _grown(self, state: HostState, boundary: Boundary) -> tuple[Interval, ...]:
        """The memory without an owner at the end of the pass before, where it grew in that pass; else empty."""
        if NONE in (boundary.previous, state.run):
            return ()
        run, before = self._timeline.programs[boundary.previous], self._boundary_of[boundary.previous]
        if run.first_op >= run.end_op:
            return ()
        changes = self._change_of(boundary.previous, self._start(before, Explanation(state)))
        explained = self._search.explained(before, state.live, state.kept)
        found, is_grown = [], False
        for name, known, base in zip(self._memories, explained, state.base, strict=True):
            ticks = self._study.readings[name].allocated[run.end_op - 1]
            size = known + changes[name]
            low, high = (ticks - _ROUNDING) * self._tick - size, (ticks + _ROUNDING) * self._tick - size
            is_other = ticks != NONE and (low > base[1] or high < base[0]) and high > 0
            found.append((max(0.0, low), high) if is_other else base)
            is_grown = is_grown or is_other
        return tuple(found) if is_grown else ()

    # --- What is known about one pass ---

    def _boundary(self, number: int, previous: int, made: dict[int, frozenset[Item]]) -> Boundary:
        run = self._timeline.programs[number]
        is_forward = run.role is Role.FORWARD
        own = self._arguments_of(run) if is_forward else {}
        weights = set(self._items_of(run).values())
        inputs = [one for value, one in own.items() if value not in weights]
        required = frozenset(self._items_of(run)) | self._loaded_in(number)
        outputs, left_inputs = self._left_by(previous)
        return Boundary(
            run=number,
            ticks=tuple(self._first_reading(name, run) for name in self._memories),
            required=required,
            inputs=self._sum(inputs),
            has_registry=run.graph == NONE or bool(self._study.owners.registry(run.graph)),
            replaced=frozenset((run.graph, f"input {one.value}") for one in inputs),
            outputs=outputs,
            left_inputs=left_inputs,
            made=made.get(previous, frozenset()),
            uses=required | made.get(number, frozenset()) | self._names_in(run),
            previous=previous,
        )

    def _names_in(self, run: ProgramRun) -> frozenset[Item]:
        """The named weights of a graph, wherever they lie: graphs that share one belong to one model."""
        if run.role is not Role.FORWARD:
            return frozenset()
        known = self._study.owners.registry(run.graph).values()
        return frozenset((NAME, one.name, 0, 0) for one in known if one.name and one.kind is not ArgumentKind.INPUT)

    def _first_reading(self, memory: str, run: ProgramRun) -> int | None:
        if run.first_op >= run.end_op:
            return None
        ticks = self._study.readings[memory].allocated[run.first_op]
        return None if ticks == NONE else ticks

    def _made_by_pass(self) -> dict[int, frozenset[Item]]:
        """The cached results that each pass adds."""
        found: dict[int, set[Item]] = {}
        for one in self._study.owners.cached_results:
            if one.run != NONE:
                found.setdefault(self._outermost(one.run), set()).add((CACHED, one.key, 0, 0))
        return {number: frozenset(items) for number, items in found.items()}

    def _outermost(self, number: int) -> int:
        while self._timeline.programs[number].parent != NONE:
            number = self._timeline.programs[number].parent
        return number

    @cached_property
    def _loads(self) -> dict[int, set[Item]]:
        """The cached results that were there when a pass began, because it loads them and does not compute them."""
        timeline, study = self._timeline, self._study
        is_load = [call.name.endswith(".load_cached") for call in timeline.calls]
        found: dict[int, set[Item]] = {}
        computed: dict[int, set[str]] = {}
        for op, row in enumerate(study.calls):
            if row == NONE or not is_load[row]:
                continue
            key, number = study.owners.hit_key(op, timeline.calls[row]), self._outermost(study.programs[op])
            if study.flags[op] & OpFlag.CACHE_MISS or op in study.calling_ops:
                computed.setdefault(number, set()).add(key)
            elif key not in computed.get(number, ()):
                found.setdefault(number, set()).add((CACHED, key, 0, 0))
        return found

    @cached_property
    def _cached_by_key(self) -> dict[str, CachedResults]:
        return {one.key: one for one in self._study.owners.cached_results}

    def _loaded_in(self, number: int) -> frozenset[Item]:
        return frozenset(item for item in self._loads.get(number, ()) if item[1] in self._cached_by_key)

    def _left_by(self, previous: int) -> tuple[tuple[Leftover, ...], tuple[Leftover, ...]]:
        """What the pass before may have left: its outputs, and its inputs."""
        if previous == NONE or self._timeline.programs[previous].role is not Role.FORWARD:
            return (), ()
        run = self._timeline.programs[previous]
        weights = set(self._items_of(run).values())
        outputs = self._outputs_of(previous) if run.complete else ()
        inputs = [one for value, one in self._arguments_of(run).items() if value not in weights]
        left = tuple(Leftover((run.graph, one.value), one, self._sum([one])) for one in outputs)
        self._output_sizes |= {(run.graph, one.sizes) for one in left}
        return (
            left,
            tuple(Leftover((run.graph, f"input {one.value}"), one, self._sum([one])) for one in inputs),
        )

    # --- Sizes ---

    def _sum(self, buffers: Iterable[LiveBuffer]) -> Sizes:
        total = dict.fromkeys(self._memories, 0)
        for one in buffers:
            buffer = self._timeline.types[one.type].buffer
            if buffer is not None and buffer.memory in total:
                total[buffer.memory] += one.bank_bytes
        return tuple(total.values())

    def _sizes_of_item(self, item: Item) -> Sizes:
        if item[0] != CACHED:
            return self._sum([self._items[item]])
        total = dict.fromkeys(self._memories, 0)
        for row in self._cached_by_key[item[1]].call.result_types:
            buffer = self._timeline.types[row].buffer
            if buffer is not None and buffer.memory in total:
                total[buffer.memory] += self._study.bank_bytes(buffer)
        return tuple(total.values())

    # --- Arguments ---

    def _items_of(self, run: ProgramRun) -> dict[Item, str]:
        """The weights and caches among the arguments of a graph, with their SSA names.

        Two graphs of one model (prefill and decode) share weights, so an item is known by its name, shape and size.
        """
        if run.role is not Role.FORWARD:
            return {}
        if run.graph not in self._argument_items:
            found: dict[Item, str] = {}
            for value, live in self._arguments_of(run).items():
                if live.origin in _PERSISTENT:
                    kind = CACHE if live.origin is Origin.KV_CACHE else WEIGHT
                    shape = self._timeline.types[live.type].shape
                    item = (kind, f"{live.owner} {shape}", live.bank_bytes, 0)
                    while item in found:
                        item = (*item[:3], item[3] + 1)
                    found[item] = value
                    self._items.setdefault(item, live)
            self._argument_items[run.graph] = found
        return self._argument_items[run.graph]

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
                    if value.startswith("%arg") and row != NONE:
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
