"""The live sets of a timeline -> addresses: the allocator is replayed, and its largest free block checked.

The log has no addresses. The runtime's allocator is deterministic, though: it takes the first (or the best) free block
from one end of a bank. So the allocations of the ledger, in their order, give the addresses; and every snapshot has a
witness, the size of the largest free block. What happens between two passes, on the host, has no lines: a few orders of
freeing and uploading are tried, and the one that agrees with the readings of the pass is taken. A pass that disagrees
at any snapshot has no addresses, and its reason is kept.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

from torchstone.memory.ledger import ledger_of, stated_origin
from torchstone.memory.liveness import BufferEvent, TrackedBuffer
from torchstone.memory.study import Study
from torchstone.record.memory import NONE, Role
from torchstone.record.memory_findings import LiveBuffer, Origin, PlacedBuffer, Placement
from torchstone.units import many

MOST_OPS = 100_000  # the longest log whose allocations are replayed; this many take about five seconds
_UNKNOWN_OWNER = "memory that the log does not name"
_WEIGHTS = (Origin.PARAMETER, Origin.CONSTANT, Origin.KV_CACHE, Origin.CONST_EVAL)

Resize = Callable[[LiveBuffer, int], int | None]  # a buffer before an op -> its new size; None: unchanged


class Policy(NamedTuple):
    """How the allocator looks for a free block."""

    from_top: bool
    best_fit: bool = False


class Arena:
    """One bank: blocks at addresses."""

    def __init__(self, capacity: int, policy: Policy) -> None:
        self.capacity, self._policy = capacity, policy
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._largest: int | None = None

    def copy(self) -> "Arena":
        """Another bank with the same blocks."""
        other = Arena(self.capacity, self._policy)
        other._starts, other._sizes, other._largest = self._starts.copy(), self._sizes.copy(), self._largest
        return other

    def holes(self) -> Iterator[tuple[int, int]]:
        """Free blocks, from the bottom: address and size."""
        at = 0
        for start in self._starts:
            if start > at:
                yield at, start - at
            at = start + self._sizes[start]
        if at < self.capacity:
            yield at, self.capacity - at

    def allocate(self, size: int) -> int | None:
        """The address of a new block; None where none is large enough."""
        fitting = [hole for hole in self.holes() if hole[1] >= size]
        if not fitting or size <= 0:
            return None
        if self._policy.best_fit:
            least = min(room for _, room in fitting)
            fitting = [hole for hole in fitting if hole[1] == least]
        start, room = fitting[-1] if self._policy.from_top else fitting[0]
        address = start + room - size if self._policy.from_top else start
        self._starts.insert(bisect_left(self._starts, address), address)
        self._sizes[address] = size
        self._largest = None
        return address

    def free(self, address: int) -> None:
        """Free a block."""
        del self._sizes[address]
        del self._starts[bisect_left(self._starts, address)]
        self._largest = None

    @property
    def largest_free(self) -> int:
        """The size of the largest free block."""
        if self._largest is None:
            self._largest = max((size for _, size in self.holes()), default=0)
        return self._largest


@dataclass(slots=True)
class _Run:
    """One pass: what is live when it starts, and what comes and goes while it runs."""

    number: int
    first_op: int
    end_op: int
    start: tuple[TrackedBuffer, ...]
    events: list[BufferEvent]
    unknown_bytes: int  # at its start, of no known owner
    left: tuple[TrackedBuffer, ...]
    graph: int


_Key = tuple[str, str, int]


@dataclass(slots=True)
class _State:
    """The blocks of a bank, by what lies in them."""

    arena: Arena
    places: dict[int, int] = field(default_factory=dict)  # id of a tracked buffer -> address
    kept: dict[_Key, list[int]] = field(default_factory=lambda: defaultdict(list))  # between passes
    unknown: int | None = None  # address of the memory without an owner
    unknown_bytes: int = 0


class _Order(NamedTuple):
    """What the host does between two passes."""

    frees_first: bool
    uploads_again: bool  # inputs of the same name are new buffers
    weights_first: bool
    from_scratch: bool = False  # nothing is known about the layout before


_ORDERS = (
    *(_Order(*flags) for flags in product((True, False), (True, False), (False, True))),
    *(
        _Order(frees_first=True, uploads_again=True, weights_first=weights_first, from_scratch=True)
        for weights_first in (False, True)
    ),
)


class AllocatorReplay:
    """The replay of one memory."""

    def __init__(self, study: Study, memory: str) -> None:
        self._study, self._memory = study, memory
        self._readings = study.readings[memory]
        self._tick = (1 << 20) / study.timeline.ticks_per_mib
        self._chosen: dict[int, _Order] = {}
        self._wrong: dict[int, int] = {}  # run -> first op whose largest free block is another
        self._blocks: list[PlacedBuffer] = []
        self._checked = self._ambiguous = 0
        self._policy = Policy(from_top=memory != "DRAM")

    @cached_property
    def placement(self) -> Placement:
        """Blocks of the passes that agree with every reading, and how many do."""
        timeline, memory = self._study.timeline, self._memory
        if len(timeline.ops) > MOST_OPS:
            reason = f"the log has more than {MOST_OPS:,} ops; `memory last-run` writes a shorter one"
            return Placement(memory=memory, reason=reason)
        if not self._runs:
            return Placement(memory=memory, reason="the log has no program with readings of this memory")
        best: tuple[int, Policy] | None = None
        for policy in (Policy(memory != "DRAM"), Policy(memory != "DRAM", best_fit=True)):
            self._follow(policy)
            if best is None or len(self._wrong) < best[0]:
                best = len(self._wrong), policy
            if not self._wrong:
                break
        else:
            self._follow(best[1] if best else policy)
        reason = ""
        if self._wrong:
            op = min(self._wrong.values())
            reason = (
                f"the replayed allocator disagrees with the largest free block first before op {op}; "
                f"{len(self._wrong)} of {many(len(self._runs), 'pass has', 'passes have')} no addresses"
            )
        return Placement(
            memory=memory,
            capacity_bytes=self._capacity,
            blocks=tuple(self._blocks),
            checked=self._checked,
            passes=len(self._runs),
            verified_passes=len(self._runs) - len(self._wrong),
            policy=f"{'best' if self._policy.best_fit else 'first'} fit from the {self._end}",
            is_ambiguous=self._is_ambiguous,
            reason=reason,
        )

    @property
    def _is_ambiguous(self) -> bool:
        return self._ambiguous > 0 or any(run.unknown_bytes for run in self._runs)

    @property
    def _end(self) -> str:
        return "top" if self._policy.from_top else "bottom"

    @cached_property
    def _capacity(self) -> int:
        exact = (one.bank_bytes for one in self._study.timeline.failures if one.memory == self._memory)
        state = next((state for run in self._runs if (state := self._readings.of_op(run.first_op))), None)
        return next(exact, None) or (0 if state is None else round(state.capacity * self._tick))

    # --- The passes ---

    @cached_property
    def _runs(self) -> list[_Run]:
        ledger, found = ledger_of(self._study), []
        for number, run in enumerate(self._study.timeline.programs):
            if run.parent != NONE or run.first_op >= run.end_op:
                continue
            replay = ledger.replay(number)
            start = tuple(one for one in replay.tracked if one.memory == self._memory)
            reading = self._readings.allocated[run.first_op]
            known = sum(one.live.bank_bytes for one in start)
            replay.follow()
            replay.end()
            left = tuple(one for one in replay.tracked if one.memory == self._memory)
            events = [event for event in replay.events if event.tracked.memory == self._memory]
            unknown = 0 if reading == NONE else round(reading * self._tick) - known
            slack = 0 if unknown <= self._tick else unknown
            graph = run.graph if run.role is Role.FORWARD else NONE
            found.append(_Run(number, run.first_op, run.end_op, start, events, slack, left, graph))
        return found

    def _follow(self, policy: Policy) -> None:
        """Replay all passes; of the orders of the host, the first one that agrees with all readings of a pass."""
        self._policy, self._blocks, self._checked, self._ambiguous = policy, [], 0, 0
        self._chosen, self._wrong = {}, {}
        state, is_lost = _State(Arena(self._capacity, policy)), False
        for run in self._runs:
            best: tuple[int, _State, _Order, list[PlacedBuffer], int] | None = None
            for order in _ORDERS:
                trial = self._begin(state, run, order)
                if trial is None:
                    continue
                blocks: list[PlacedBuffer] = []
                wrong, checked, first_wrong = self._simulate(trial, run, blocks)
                if best is None or wrong < best[0]:
                    best = wrong, trial, order, blocks, first_wrong
                if wrong == 0:
                    self._checked += checked
                    break
            if best is None:
                self._wrong[run.number] = run.first_op
                continue
            wrong, begun, self._chosen[run.number], blocks, first_wrong = best
            is_changed = abs(run.unknown_bytes - state.unknown_bytes) > self._tick and run is not self._runs[0]
            is_lost = is_lost or is_changed  # memory without an owner came or went: its place is unknown from here on
            if wrong or is_lost:
                self._wrong[run.number] = first_wrong if wrong else run.first_op
            else:
                self._ambiguous += self._agrees_otherwise(state, run, begun)
                self._blocks += blocks
            state = begun
            self._end_run(state, run)

    def _agrees_otherwise(self, before: _State, run: _Run, chosen: _State) -> bool:
        """Whether uploads in another order agree with all readings of a pass, too, and lie elsewhere."""
        order = self._chosen[run.number]
        other = self._begin(before, run, order._replace(weights_first=not order.weights_first))
        if other is None:
            return False
        starts = {id(one): other.places.get(id(one)) for one in run.start}
        wrong, _, _ = self._simulate(other, run, [])
        return wrong == 0 and any(chosen.places.get(number, place) != place for number, place in starts.items())

    def _begin(self, before: _State, run: _Run, order: _Order, resize: Resize | None = None) -> _State | None:
        """The blocks at the start of a pass, if the host works in this order; None where they do not fit."""
        state = _State(before.arena.copy(), unknown=before.unknown, unknown_bytes=before.unknown_bytes)
        kept = {key: list(places) for key, places in before.kept.items()}
        if order.from_scratch:
            state, kept = _State(Arena(self._capacity, self._policy)), {}
        fresh = []
        for one in run.start:
            places = kept.get(_key(one.live))
            again = order.uploads_again and one.live.origin is Origin.INPUT
            if places and not again:
                state.places[id(one)] = places.pop()  # of several outputs of a graph, the newest
            else:
                fresh.append(one)
        gone = [place for places in kept.values() for place in places]
        is_same = abs(run.unknown_bytes - state.unknown_bytes) <= self._tick  # both are rounded
        if not is_same and not self._set_unknown(state, run.unknown_bytes):
            return None
        for address in gone if order.frees_first else ():
            state.arena.free(address)
        for one in sorted(fresh, key=lambda one: _upload_order(one.live, weights_first=order.weights_first)):
            if not _put(state, one, _size(one.live, run.first_op, resize)):
                return None
        for address in () if order.frees_first else gone:
            state.arena.free(address)
        return state

    def _set_unknown(self, state: _State, size: int) -> bool:
        if state.unknown is not None:
            state.arena.free(state.unknown)
        state.unknown = state.arena.allocate(size) if size else None
        state.unknown_bytes = size
        return not size or state.unknown is not None

    def _simulate(self, state: _State, run: _Run, blocks: list[PlacedBuffer]) -> tuple[int, int, int]:
        """Follow a pass; how many largest free blocks are wrong, how many were compared, and the first wrong op."""
        since = {id(one): run.first_op for one in run.start}
        live = {id(one): one for one in run.start}
        wrong = checked = at = 0
        first_wrong = NONE
        for op in range(run.first_op, run.end_op):
            reading = self._readings.largest_free[op]
            if reading != NONE:
                checked += 1
                if abs(state.arena.largest_free / self._tick - reading) > 1.01:  # noqa: PLR2004 - both are rounded
                    wrong += 1
                    first_wrong = op if first_wrong == NONE else first_wrong
            while at < len(run.events) and run.events[at].op <= op:
                _, sign, one = run.events[at]
                at += 1
                if sign > 0:
                    if not _put(state, one, one.live.bank_bytes):
                        if op == run.end_op - 1:
                            continue  # this is where the device ran out, or the log ends
                        return wrong + 1, checked, op if first_wrong == NONE else first_wrong
                    since[id(one)], live[id(one)] = op + 1, one
                elif id(one) in state.places:
                    blocks.append(self._block(state, live.pop(id(one)), since[id(one)], op + 1))
                    state.arena.free(state.places.pop(id(one)))
        blocks += [self._block(state, one, since[number], run.end_op) for number, one in live.items()]
        if state.unknown is not None:
            blocks.append(
                PlacedBuffer(
                    address=state.unknown,
                    bank_bytes=state.unknown_bytes,
                    owner=_UNKNOWN_OWNER,
                    origin=None,
                    from_op=run.first_op,
                    end_op=run.end_op,
                )
            )
        return wrong, checked, first_wrong

    def _block(self, state: _State, one: TrackedBuffer, since: int, end: int) -> PlacedBuffer:
        return PlacedBuffer(
            address=state.places.get(id(one), 0),
            bank_bytes=one.live.bank_bytes,
            owner=one.live.owner,
            origin=one.live.origin,
            from_op=since,
            end_op=end,
        )

    def _end_run(self, state: _State, run: _Run) -> None:
        for address in self._ended(state, run):
            state.arena.free(address)

    def _ended(self, state: _State, run: _Run) -> list[int]:
        """Keep what a pass leaves under the names that it has in the next; gives what nothing refers to."""
        stay = {id(one) for one in run.left}
        for one in run.left:
            if id(one) in state.places:
                state.kept[_key(one.live, graph=run.graph)].append(state.places[id(one)])
        gone = [address for number, address in state.places.items() if number not in stay]
        state.places = {}
        return gone

    # --- With a change ---

    def would_fit(
        self, op: int, needed_bytes: int, resize: Resize, *, weights_first: bool | None = None
    ) -> bool | None:
        """Whether an allocation during an op would find a block, had some buffers other sizes; None: not replayed.

        With `weights_first`, the host uploads weights before inputs. Where the order of the uploads is not known, the
        answer is the one that all orders give, if there is one.
        """
        run = next((run for run in self._runs if run.first_op <= op < run.end_op), None)
        is_known = self.placement.policy != "" and all(one.number in self._chosen for one in self._runs)
        if not is_known or run is None or run.number in self._wrong or any(one.unknown_bytes for one in self._runs):
            return None
        orders = (False, True) if self._ambiguous and weights_first is None else (weights_first,)
        answers = {self._fits_in(run, op, needed_bytes, resize, weights_first=order) for order in orders}
        return answers.pop() if len(answers) == 1 else None

    def _fits_in(self, run: _Run, op: int, needed_bytes: int, resize: Resize, *, weights_first: bool | None) -> bool:
        state = _State(Arena(self._capacity, self._policy))
        for one in self._runs:
            order = self._chosen[one.number]
            if weights_first is not None:
                order = order._replace(weights_first=weights_first)
            begun = self._begin(state, one, order, resize)
            if begun is None:
                return False
            state = begun
            if not _replay(state, one, resize, until=op):
                return False
            if one is run:
                break
            self._end_run(state, one)
        return _settle(state, run, resize, op, needed_bytes)


def split_by(placement: Placement, op: int) -> tuple[PlacedBuffer, int] | None:
    """The smallest buffer before an op that separates the two free blocks which together are largest.

    Gives it with the size of the block that would be free without it; None where there are no addresses.
    """
    live = sorted((one for one in placement.blocks if one.from_op <= op < one.end_op), key=lambda one: one.address)
    if not live:
        return None
    ends = [0, *(one.address + one.bank_bytes for one in live)]
    starts = [*(one.address for one in live[1:]), placement.capacity_bytes]
    joined = [(after - before, one) for before, one, after in zip(ends, live, starts, strict=False)]
    split = [(size, one) for size, one in joined if size > one.bank_bytes]
    if not split:
        return None
    size, buffer = max(split, key=lambda pair: (pair[0], -pair[1].bank_bytes))
    return buffer, size


def _replay(state: _State, run: _Run, resize: Resize, *, until: int) -> bool:
    for op, sign, one in run.events:
        if op >= until:
            break
        if sign > 0:
            if not _put(state, one, _size(one.live, op, resize)):
                return False
        elif id(one) in state.places:
            state.arena.free(state.places.pop(id(one)))
    return True


def _settle(state: _State, run: _Run, resize: Resize, op: int, needed_bytes: int) -> bool:
    """Free what a change frees before the op itself, then look for the block."""
    made = [event.tracked for event in run.events if event.sign > 0 and event.op < op]
    for one in (*run.start, *made):
        if id(one) in state.places and resize(one.live, op) == 0:
            state.arena.free(state.places.pop(id(one)))
    return state.arena.largest_free >= needed_bytes


def _size(live: LiveBuffer, op: int, resize: Resize | None) -> int:
    changed = None if resize is None else resize(live, op)
    return live.bank_bytes if changed is None else changed


def _put(state: _State, one: TrackedBuffer, size: int) -> bool:
    if size == 0:
        return True
    address = state.arena.allocate(size)
    if address is not None:
        state.places[id(one)] = address
    return address is not None


def _key(live: LiveBuffer, *, graph: int = NONE) -> _Key:
    """What a buffer is called between passes; the results of a pass are its outputs from then on."""
    if live.origin is Origin.ACTIVATION:
        return Origin.OUTPUT.value, f"output of graph {graph}: {live.owner}", live.bank_bytes
    return live.origin.value, live.owner, live.bank_bytes


def _upload_order(live: LiveBuffer, *, weights_first: bool) -> tuple[int, int]:
    digits = live.value.removeprefix("%arg")
    position = int(digits) if digits.isdecimal() and len(digits) < 10 else 0  # noqa: PLR2004 - more is damage
    return int(weights_first and live.origin not in _WEIGHTS), position


def allocator_replay(study: Study, memory: str) -> AllocatorReplay:
    """The replay of one memory, made once."""
    return study.once((AllocatorReplay, memory), lambda: AllocatorReplay(study, memory))


def placements(study: Study, memories: Sequence[str]) -> tuple[Placement, ...]:
    """Where the buffers lie: as the source states it, else by replay."""
    return tuple(
        _stated(study, memory) if study.timeline.allocations else allocator_replay(study, memory).placement
        for memory in memories
    )


def _stated(study: Study, memory: str) -> Placement:
    timeline = study.timeline
    found = [one for one in timeline.allocations if one.memory == memory]
    state = study.readings[memory].of_op(0) if len(timeline.ops) else None
    return Placement(
        memory=memory,
        capacity_bytes=0 if state is None else state.capacity,
        blocks=tuple(
            PlacedBuffer(
                address=one.address,
                bank_bytes=one.bank_bytes,
                owner=one.owner,
                origin=stated_origin(one),
                from_op=one.from_op,
                end_op=one.end_op,
            )
            for one in found
        ),
        passes=1,
        verified_passes=1,
        policy="as the report states it",
    )
