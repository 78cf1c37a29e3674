"""What the program around the passes keeps on the device: a search for the explanation that fits all readings.

No line of a log says what the host does between two passes: it uploads weights and inputs, keeps or drops outputs,
frees a model that it no longer needs. The first reading of each pass is the witness. The search follows several
explanations side by side (`HostState`). Each has a cost, which grows when the host must have changed its habits; an
explanation that contradicts a reading ends. The cheapest one that survives the whole log is the answer. So an output
that is too small to show in any single reading is believed to be kept where the host keeps the others, or where a
hundred of them show.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import combinations
from typing import NamedTuple

from torchstone.record.memory import NONE
from torchstone.record.memory_findings import LiveBuffer

_ROUNDING = 0.5001  # of a tick; a tie (62.5) may be printed as either neighbour
_BEAM = 24  # explanations that are followed side by side
_FEWEST = 3
_CALM = 48  # passes without a contradiction, after which half of the explanations are given up
_MOST_CHANGE = 3.0  # the cost of what may change between two passes
_FORGET = 2.0  # the cost of freeing some of the outputs that the host kept
_REOPEN = 2.5  # the cost of closing the device and opening it again
_USED_TO = 2  # after this many times, memory that no line names may come and go
_USUAL_SURPRISE = 0.6
_SLACK = 2.0  # how much an explanation may cost more than the cheapest, and still change
_RIVAL = 0.35  # an explanation that costs at most this much more than the cheapest is as likely
_RIVAL_SHARE = 0.3  # the more the host must have changed its habits, the less a difference in cost means
_CALM_COST = 2.5  # of the habits of a host that never changes them
_PAIRED = range(3, 7)  # numbers of outputs that are tried in pairs
_MOST_SINGLES = 12  # outputs, or kept buffers, that are tried one by one

Item = tuple[str, str, int, int]  # a weight or a cached result, which several graphs may share
WEIGHT, CACHE, CACHED, NAME = "weight", "KV cache", "cached", "name"
Slot = tuple[int, str]  # a graph and one of its outputs or inputs
Sizes = tuple[int, ...]  # bytes per bank, by memory
Interval = tuple[float, float]


class Habit(Enum):
    """What the host does with an output after the pass."""

    DROP = "drop"
    KEEP = "keep"  # for ever
    REPLACE = "replace"  # until the same graph returned the next one


class Leftover(NamedTuple):
    """A buffer that a pass leaves to the host."""

    slot: Slot
    buffer: LiveBuffer
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Boundary:
    """The moment before the first op of a pass, and what the pass before it left."""

    run: int
    ticks: tuple[int | None, ...]  # the first reading, by memory
    required: frozenset[Item]  # weights and cached results that the pass reads
    inputs: Sizes  # of its other arguments
    has_registry: bool  # without one, memory that is left may belong to its own arguments
    replaced: frozenset[Slot]  # inputs kept from before that are its own arguments
    outputs: tuple[Leftover, ...] = ()  # of the pass before
    left_inputs: tuple[Leftover, ...] = ()
    made: frozenset[Item] = frozenset()  # cached results of the pass before
    uses: frozenset[Item] = frozenset()  # all that this pass reads or computes, weights on the host too: of one model
    previous: int = NONE


Kept = Mapping[tuple[Slot, LiveBuffer], tuple[int, Sizes]]  # how often, and the sizes of one


@dataclass(frozen=True, slots=True)
class HostState:
    """One explanation of what is on the device when a pass starts, besides its inputs."""

    run: int
    live: frozenset[Item] = frozenset()
    kept: Kept = field(default_factory=dict)
    base: tuple[Interval, ...] = ()  # bytes per bank without an owner
    habits: Mapping[Slot, Habit] = field(default_factory=dict)
    default: Habit = Habit.DROP  # of outputs that were not seen yet
    keeps_inputs: frozenset[Slot] = frozenset()  # the inputs that stay until their graph runs again
    cost: float = 0.0
    parent: "HostState | None" = None
    surprises: int = 0  # how often memory that no line names came or went

    def others(self) -> Iterator[LiveBuffer]:
        """The buffers that the host kept from earlier passes."""
        for (_, buffer), (count, _) in self.kept.items():
            yield from [buffer] * count


class Explanation(NamedTuple):
    """The cheapest explanation of a start, and what those that cost hardly more have in common with it."""

    best: HostState
    rivals: tuple[HostState, ...] = ()  # those that differ from it here
    is_erratic: bool = False  # the host changed its habits: what no reading shows is not known

    @property
    def certain(self) -> frozenset[Item]:
        """The weights and cached results that no rival contradicts."""
        return self.best.live.intersection(*(one.live for one in self.rivals))

    def count(self, key: tuple[Slot, LiveBuffer]) -> int:
        """How many kept buffers of one kind no rival contradicts."""
        return min(one.kept[key][0] if key in one.kept else 0 for one in (self.best, *self.rivals))


class _Change(NamedTuple):
    """Something that may have happened between two passes."""

    cost: float
    live: frozenset[Item]
    kept: Kept
    habits: Mapping[Slot, Habit]
    default: Habit
    keeps_inputs: frozenset[Slot]
    removable: Kept = {}  # of what is kept, what was there before


class _Removal(NamedTuple):
    """Buffers that the host kept, and may free."""

    sizes: Sizes
    cost: float
    gone: "Counter[tuple[Slot, LiveBuffer]]"


class _History:
    """The states that lead to one, by pass."""

    def __init__(self, last: HostState) -> None:
        states: list[HostState] = []
        state: HostState | None = last
        while state is not None:
            states.append(state)
            state = state.parent
        self._states = states[::-1]
        self._runs = [one.run for one in self._states]

    def at(self, run: int) -> HostState:
        """The state when a pass starts."""
        return self._states[bisect_right(self._runs, run) - 1]


class _Groups:
    """Items that are used together belong to one model; it is freed as a whole."""

    def __init__(self) -> None:
        self._parents: dict[Item, Item] = {}
        self._joined: set[frozenset[Item]] = set()

    def find(self, item: Item) -> Item:
        """The item that stands for the group."""
        while (parent := self._parents.get(item, item)) != item:
            item = self._parents[item] = self._parents.get(parent, parent)
        return item

    def join(self, items: frozenset[Item]) -> None:
        """Make one group of the groups of these items."""
        if items in self._joined:
            return
        self._joined.add(items)
        roots = [self.find(item) for item in items]
        for root in roots[1:]:
            self._parents[root] = roots[0]


class HostSearch:
    """Finds the cheapest explanation of all first readings."""

    def __init__(
        self,
        boundaries: Sequence[Boundary],
        sizes_of: Callable[[Item], Sizes],
        tick_bytes: float,
        grown: Callable[[HostState, Boundary], tuple[Interval, ...]],
    ) -> None:
        self._boundaries, self._sizes_of, self._tick = boundaries, sizes_of, tick_bytes
        self._grown = grown
        self._totals: dict[frozenset[Item], Sizes] = {}
        self._removal_lists: dict[tuple[tuple[tuple[Slot, LiveBuffer], int], ...], list[_Removal]] = {}
        self._zero = tuple(0 for _ in boundaries[0].ticks) if boundaries else ()
        self._last_use: dict[Item, int] = {}
        self._models = _Groups()
        for number, boundary in enumerate(boundaries):
            self._last_use.update(dict.fromkeys(boundary.required, number))
            self._models.join(boundary.uses)
        self._model_ends: dict[Item, int] = {}
        for item, number in self._last_use.items():
            model = self._models.find(item)
            self._model_ends[model] = max(number, self._model_ends.get(model, NONE))
        uses = [self._find_first_uses(kinds) for kinds in ((WEIGHT,), (WEIGHT, CACHE))]
        self._first_uses = uses if uses[0] != uses[1] else uses[:1]

    def _find_first_uses(self, kinds: tuple[str, ...]) -> list[tuple[int, frozenset[Item]]]:
        """The passes that need weights which no earlier pass did, with these."""
        seen: set[Item] = set()
        found = []
        for number, boundary in enumerate(self._boundaries):
            new = frozenset(item for item in boundary.required if item[0] in kinds and item not in seen)
            if new:
                seen |= new
                found.append((number, new))
        return found

    def _last_use_of_model(self, item: Item) -> int:
        return self._model_ends.get(self._models.find(item), NONE)

    def explanations(self) -> dict[int, Explanation]:
        """What is on the device before each pass."""
        beam = [HostState(NONE, base=tuple((0.0, 0.0) for _ in self._zero))]
        calm = 0
        for number, boundary in enumerate(self._boundaries):
            beam, is_calm = self._advance(beam, number, boundary)
            calm = calm + 1 if is_calm else 0
            if calm and calm % _CALM == 0:
                beam = beam[: max(_FEWEST, len(beam) // 2)]
        if not beam:
            return {}
        best = min(beam, key=lambda one: one.cost)
        begun = _History(best).at(self._boundaries[0].run).cost
        doubt = max(0.0, best.cost - begun - _CALM_COST)
        most = best.cost + _RIVAL + _RIVAL_SHARE * doubt
        chain, *others = [_History(one) for one in [best, *beam] if one.cost <= most]
        found = {}
        for boundary in self._boundaries:
            state = chain.at(boundary.run)
            rivals = {id(one): one for other in others if (one := other.at(boundary.run)) is not state}
            found[boundary.run] = Explanation(state, tuple(rivals.values()), is_erratic=doubt > 0)
        return found

    def _advance(self, beam: list[HostState], number: int, boundary: Boundary) -> tuple[list[HostState], bool]:
        found: list[HostState] = []
        failed: list[HostState] = []
        for state in beam:
            usual = self._usual(state, boundary)
            (failed if usual is None else found).append(state if usual is None else usual)
        best = min((one.cost for one in found), default=float("inf"))
        is_new = any(one.slot not in beam[0].habits for one in boundary.outputs)
        for state in beam if is_new else failed:
            if state.cost + 1 <= best + _SLACK:
                found += self._changed(state, number, boundary)
        if not found:
            found = [self._lost(state, boundary) for state in beam]
        is_calm = not failed and not is_new
        return (found if is_calm else _cheapest(found)), is_calm

    # --- One transition ---

    def _usual(self, state: HostState, boundary: Boundary) -> HostState | None:
        """The state if the host does what it always did; None where the reading contradicts that."""
        live = state.live
        if not boundary.made <= live or not boundary.required <= live:
            live = live | boundary.made | boundary.required
        kept, habits = self._keep(state, boundary, state.habits, state.default, keeps_inputs=state.keeps_inputs)
        change = _Change(0.0, live, kept, habits, state.default, state.keeps_inputs)
        rest = self._rest(boundary, change)
        base = _narrowed(state.base, rest)
        if base is None:
            grown = self._grown(state, boundary)
            base = _narrowed(grown, rest) if grown else None
        return None if base is None else self._next(state, boundary, change, base)

    def _changed(self, state: HostState, number: int, boundary: Boundary) -> Iterator[HostState]:
        """The states after every cheap change that agrees with the reading."""
        bases = [(0.0, state.base)]
        grown = self._grown(state, boundary)
        bases += [(0.0, grown)] if grown else []
        nothing = tuple((0.0, 0.0) for _ in state.base)
        if any(high > 0 for _, high in state.base):
            bases.append((1.0, nothing))
        for change in self._changes(state, number, boundary):
            rest = self._rest(boundary, change)
            for cost, base in bases:
                narrowed = _narrowed(base, rest)
                if narrowed is not None and change.cost + cost <= _MOST_CHANGE:
                    yield self._next(state, boundary, change, narrowed, cost)
                if change.removable and change.cost + cost + _FORGET <= _MOST_CHANGE:
                    yield from self._forgetting(state, boundary, change, base, cost)
            free = self._surprise(state, number)
            if (not change.cost or not number) and (opened := _opened(bases[-1][1], rest)) is not None:
                yield self._next(state, boundary, change, opened, free, surprises=state.surprises + 1)
        yield from self._reopened(state, boundary, nothing)

    def _surprise(self, state: HostState, number: int) -> float:
        """The cost of memory that no line names, and that came or went; less where it did so before."""
        if not number:
            return 2.0
        return _MOST_CHANGE + 1 if state.surprises < _USED_TO else _USUAL_SURPRISE

    def _reopened(self, state: HostState, boundary: Boundary, nothing: tuple[Interval, ...]) -> Iterator[HostState]:
        """The device was closed and opened again: only what the pass reads is there."""
        change = _Change(_REOPEN, boundary.required, {}, state.habits, state.default, state.keeps_inputs)
        narrowed = _narrowed(nothing, self._rest(boundary, change))
        if narrowed is not None and state.live != boundary.required:
            yield self._next(state, boundary, change, narrowed)

    def _forgetting(
        self, state: HostState, boundary: Boundary, change: _Change, base: tuple[Interval, ...], cost: float
    ) -> Iterator[HostState]:
        """The states in which the host also freed some of the outputs that it kept; the reading says how much."""
        removals = self._removals(change.removable)
        known = self.explained(boundary, change.live, change.kept)
        wanted: list[Interval | None] = []
        for ticks, size, (low, high) in zip(boundary.ticks, known, base, strict=True):
            least = size + low - ((ticks or 0) + _ROUNDING) * self._tick
            most = size + high - ((ticks or 0) - _ROUNDING) * self._tick
            wanted.append(None if ticks is None else (least, most))
        first = wanted[0] or (0.0, float("inf"))
        at = bisect_left(removals, first[0], key=lambda one: one.sizes[0])
        for one in removals[at:]:
            if one.sizes[0] > first[1]:
                break
            fits = all(part is None or part[0] <= size <= part[1] for part, size in zip(wanted, one.sizes, strict=True))
            if fits and change.cost + cost + one.cost <= _MOST_CHANGE:
                kept = _without(change.kept, one.gone)
                less = change._replace(cost=change.cost + one.cost, kept=kept)
                narrowed = _narrowed(base, self._rest(boundary, less))
                if narrowed is not None:
                    yield self._next(state, boundary, less, narrowed, cost)

    def _removals(self, kept: Kept) -> "list[_Removal]":
        """Some of the kept buffers, by size: all, all of one kind, and up to three at random."""
        key = tuple((one, count) for one, (count, _) in kept.items())
        if key in self._removal_lists:
            return self._removal_lists[key]
        singles = [one for one, (count, _) in list(kept.items())[-_MOST_SINGLES:] for _ in range(min(count, 3))]
        groups: list[tuple[float, Counter[tuple[Slot, LiveBuffer]]]] = [
            (_FORGET, Counter({one: count for one, (count, _) in kept.items()})),
            *((_FORGET, Counter({one: count})) for one, (count, _) in kept.items()),
        ]
        for count in range(1, 4):
            groups += [(_FORGET + 0.3 * (count - 1), Counter(some)) for some in combinations(singles, count)]
        found: dict[frozenset[tuple[tuple[Slot, LiveBuffer], int]], _Removal] = {}
        for cost, gone in groups:
            rows = [tuple(count * size for size in kept[one][1]) for one, count in gone.items()]
            sizes = tuple(map(sum, zip(self._zero, *rows, strict=True)))
            found.setdefault(frozenset(gone.items()), _Removal(sizes, cost, gone))
        self._removal_lists[key] = sorted(found.values(), key=lambda one: one.sizes)
        return self._removal_lists[key]

    def _changes(self, state: HostState, number: int, boundary: Boundary) -> Iterator[_Change]:
        live = list(self._live_changes(state, number, boundary))
        for habit_cost, slots, default, keeps_inputs in self._habit_changes(state, boundary):
            kept, now = self._keep(state, boundary, slots, default, keeps_inputs=keeps_inputs)
            old = {key: (min(kept[key][0], count), sizes) for key, (count, sizes) in state.kept.items() if key in kept}
            for live_cost, items in live:
                cost = habit_cost + live_cost
                if cost <= _MOST_CHANGE:
                    yield _Change(cost, items, kept, now, default, keeps_inputs, old)

    def _live_changes(
        self, state: HostState, number: int, boundary: Boundary
    ) -> Iterator[tuple[float, frozenset[Item]]]:
        """Weights and cached results: as before, uploaded for graphs to come, or freed."""
        live = state.live | boundary.made | boundary.required
        yield 0.0, live
        for first_uses in self._first_uses if boundary.has_registry else ():
            early = live
            for first, items in first_uses:
                if first > number:
                    early = early | items
                    yield 1.0, early
        used = frozenset(item for item in live if self._last_use.get(item, NONE) >= number)
        loaded = frozenset(item for item in live if self._last_use_of_model(item) >= number)
        if loaded not in (live, used):
            yield 1.0, loaded
        if used != live:
            yield 1.0, used
        current = {self._models.find(item) for item in boundary.required | boundary.uses}
        others = {model for item in live if (model := self._models.find(item)) not in current}
        for model in sorted(others)[:_MOST_SINGLES]:
            yield 1.0, frozenset(item for item in live if self._models.find(item) != model)
        if boundary.required != used:
            yield 2.0, boundary.required

    def _habit_changes(
        self, state: HostState, boundary: Boundary
    ) -> Iterator[tuple[float, Mapping[Slot, Habit], Habit, frozenset[Slot]]]:
        """What the host does with the outputs and inputs of the pass before."""
        slots = [one.slot for one in boundary.outputs]
        changes: list[tuple[float, Mapping[Slot, Habit], Habit]] = [(0.0, state.habits, state.default)]
        for habit in Habit if slots else ():
            changed = {**state.habits, **dict.fromkeys(slots, habit)}
            cost = max(_price(state, slot, habit) for slot in slots)
            changes.append((cost, changed, state.default if state.habits else habit))
        for slot in slots[:_MOST_SINGLES] if len(slots) > 1 else ():
            for habit in Habit:
                if state.habits.get(slot, state.default) is not habit:
                    changes.append((max(1.0, _price(state, slot, habit)), {**state.habits, slot: habit}, state.default))
        for pair in combinations(slots, 2) if len(slots) in _PAIRED else ():
            for habit in (Habit.KEEP, Habit.DROP):
                changes.append((1.5, {**state.habits, **dict.fromkeys(pair, habit)}, state.default))
        for cost, habits, default in changes:
            yield cost, habits, default, state.keeps_inputs
            inputs = frozenset(one.slot for one in boundary.left_inputs)
            if inputs:
                yield cost + 0.7, habits, default, state.keeps_inputs ^ inputs
            for slot in sorted(inputs)[:_MOST_SINGLES] if len(inputs) > 1 else ():
                yield cost + 0.9, habits, default, state.keeps_inputs ^ {slot}

    def _keep(
        self,
        state: HostState,
        boundary: Boundary,
        habits: Mapping[Slot, Habit],
        default: Habit,
        *,
        keeps_inputs: frozenset[Slot],
    ) -> tuple[Kept, Mapping[Slot, Habit]]:
        """The buffers that are kept after a pass, and the habits with those of its outputs."""
        kept = state.kept
        new = {one.slot: default for one in boundary.outputs if one.slot not in habits}
        habits = {**habits, **new} if new else habits
        replaced = {one.slot for one in boundary.outputs if habits[one.slot] is Habit.REPLACE} | boundary.replaced
        if replaced and any(slot in replaced for slot, _ in kept):
            kept = {key: value for key, value in kept.items() if key[0] not in replaced}
        added = [one for one in boundary.outputs if habits[one.slot] is not Habit.DROP]
        added += [one for one in boundary.left_inputs if one.slot in keeps_inputs - boundary.replaced]
        if added:
            more = dict(kept)
            for one in added:
                count, sizes = more.get((one.slot, one.buffer), (0, one.sizes))
                more[one.slot, one.buffer] = count + 1, sizes
            kept = more
        return state.kept if kept == state.kept else kept, habits

    # --- Sizes ---

    def _rest(self, boundary: Boundary, change: _Change) -> tuple[Interval | None, ...]:
        """What a reading leaves for memory without an owner; None without a reading."""
        known = self.explained(boundary, change.live, change.kept)
        rest: list[Interval | None] = []
        for ticks, size in zip(boundary.ticks, known, strict=True):
            low, high = ((ticks or 0) - _ROUNDING) * self._tick - size, ((ticks or 0) + _ROUNDING) * self._tick - size
            rest.append(None if ticks is None else (low, high))
        return tuple(rest)

    def explained(self, boundary: Boundary, live: frozenset[Item], kept: Kept) -> Sizes:
        """Bytes per bank of all that a state says is on the device when a pass starts, by memory."""
        total = self._total(live)
        rows = [total, boundary.inputs]
        rows += [tuple(count * size for size in sizes) for count, sizes in kept.values()]
        return tuple(map(sum, zip(*rows, strict=True)))

    def _total(self, live: frozenset[Item]) -> Sizes:
        if live not in self._totals:
            rows: Iterable[Sizes] = [self._zero, *(self._sizes_of(item) for item in live)]
            self._totals[live] = tuple(map(sum, zip(*rows, strict=True)))
        return self._totals[live]

    def _next(
        self,
        state: HostState,
        boundary: Boundary,
        change: _Change,
        base: tuple[Interval, ...],
        more: float = 0.0,
        *,
        surprises: int | None = None,
    ) -> HostState:
        is_same = change.live is state.live and change.kept is state.kept and change.habits is state.habits
        if is_same and base == state.base and not change.cost + more and state.run != NONE:
            return state
        return HostState(
            boundary.run,
            change.live,
            change.kept,
            base,
            change.habits,
            change.default,
            change.keeps_inputs,
            state.cost + change.cost + more,
            state,
            state.surprises if surprises is None else surprises,
        )

    def _lost(self, state: HostState, boundary: Boundary) -> HostState:
        """A start that no explanation fits: only what the pass reads is believed."""
        change = _Change(2 * _MOST_CHANGE, boundary.required, {}, state.habits, state.default, state.keeps_inputs)
        rest = self._rest(boundary, change)
        opened = tuple(
            base if one is None else (max(0.0, one[0]), max(0.0, one[1]))
            for one, base in zip(rest, state.base, strict=True)
        )
        return self._next(state, boundary, change, opened)


def _without(kept: Kept, gone: "Counter[tuple[Slot, LiveBuffer]]") -> Kept:
    left = {key: (count - gone[key], sizes) for key, (count, sizes) in kept.items()}
    return {key: value for key, value in left.items() if value[0]}


def _price(state: HostState, slot: Slot, habit: Habit) -> float:
    """The cost of a habit: low for an output that is seen for the first time, high for one that was treated otherwise.

    The first one of all costs less than any later one: it is the habit that the host has for all outputs, until a
    reading says otherwise.
    """
    before = state.habits.get(slot)
    if before is None:
        return 0.5 if state.habits else 0.4
    return 0.5 if {before, habit} == {Habit.KEEP, Habit.REPLACE} else 1.5  # these differ from the second output on


def _narrowed(base: tuple[Interval, ...], rest: tuple[Interval | None, ...]) -> tuple[Interval, ...] | None:
    """The memory without an owner that both allow; None where there is none."""
    found = []
    for one, other in zip(base, rest, strict=True):
        both = one if other is None else (max(one[0], other[0]), min(one[1], other[1]))
        if both[0] > both[1]:
            return None
        found.append(both)
    return base if (narrowed := tuple(found)) == base else narrowed


def _opened(base: tuple[Interval, ...], rest: tuple[Interval | None, ...]) -> tuple[Interval, ...] | None:
    """Memory without an owner, changed only where it must be; None where it would be negative."""
    found = []
    for one, other in zip(base, rest, strict=True):
        if other is None or max(one[0], other[0]) <= min(one[1], other[1]):
            found.append(one if other is None else (max(one[0], other[0]), min(one[1], other[1])))
        elif other[1] < 0:
            return None
        else:
            found.append((max(0.0, other[0]), other[1]))
    return tuple(found)


def _cheapest(states: list[HostState]) -> list[HostState]:
    """The cheapest of the states that differ, in the order of their costs."""
    found: dict[tuple[object, ...], HostState] = {}
    for state in sorted(states, key=lambda one: one.cost):
        kept = frozenset((key[0], count) for key, (count, _) in state.kept.items())
        habits = frozenset(state.habits.items())
        key = (state.live, kept, habits, state.default, state.keeps_inputs, state.base)
        found.setdefault(key, state)
        if len(found) == _BEAM:
            break
    return list(found.values())
