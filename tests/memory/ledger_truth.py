"""How far the live sets of a study agree with the truth of a generated log."""

from collections import Counter
from dataclasses import dataclass, field

from tests.memory.log_generator.run import KEPT_OUTPUT, UNKNOWN_OWNER, Truth
from torchstone.memory.allocator import placements
from torchstone.memory.ledger import live_before
from torchstone.memory.study import Study
from torchstone.record.memory_findings import LiveSet

TICK_BYTES = (1 << 20) / 1000


@dataclass
class Agreement:
    """Counts over all snapshots and memories of one or more logs."""

    sets: dict[str, int] = field(default_factory=Counter)  # by memory
    exact: dict[str, int] = field(default_factory=Counter)
    named: dict[str, int] = field(default_factory=Counter)  # wrong, but the difference is called unexplained
    violations: int = 0
    wrong: list[str] = field(default_factory=list)
    sizes_only: bool = False  # a log without dumps has no names

    def add(self, study: Study, truth: Truth, name: str, *, every: int = 1) -> None:
        """Compare the live sets before every op, or before each nth."""
        for op in range(0, len(study.timeline.ops), every):
            for live in live_before(study, op):
                self._add_set(live, truth.rows[op].live[live.memory], f"{name} op {op} {truth.rows[op].name}")

    def _add_set(self, live: LiveSet, true: list[tuple[str, int]], where: str) -> None:
        if live.measured_bytes is None:
            self.violations += is_violated(live)
            return  # there is no snapshot: the line that holds it is cut off
        found = Counter((self._label(live, number), one.bank_bytes) for number, one in enumerate(live.buffers))
        wanted = Counter(("" if self.sizes_only else owner, size) for owner, size in true if owner != UNKNOWN_OWNER)
        unknown = sum(size for owner, size in true if owner == UNKNOWN_OWNER)
        self.sets[live.memory] += 1
        self.violations += is_violated(live)
        if found == wanted and abs((live.unexplained_bytes or 0) - unknown) <= 2 * TICK_BYTES:
            self.exact[live.memory] += 1
            return
        if not found - wanted:
            self.named[live.memory] += 1
        self.wrong.append(f"{where} {live.memory}: extra {dict(found - wanted)}, missing {dict(wanted - found)}")

    def _label(self, live: LiveSet, number: int) -> str:
        buffer = live.buffers[number]
        return "" if self.sizes_only else KEPT_OUTPUT if buffer.origin.value == "output" else buffer.owner


def address_agreement(study: Study, truth: Truth, memory: str) -> tuple[int, int]:
    """At how many snapshots of the passes with addresses the blocks are those of the device, and of how many."""
    placement = placements(study, [memory])[0]
    right = total = 0
    for op in sorted({op for one in placement.blocks for op in range(one.from_op, one.end_op)}):
        found = sorted((one.address, one.bank_bytes) for one in placement.blocks if one.from_op <= op < one.end_op)
        true = truth.rows[op].blocks[memory]
        total += 1
        near = len(found) == len(true) and all(
            max(abs(mine - other) for mine, other in zip(one, two, strict=True)) <= 2 * TICK_BYTES
            for one, two in zip(found, true, strict=True)
        )
        right += near
    return right, total


def is_violated(live: LiveSet) -> bool:
    """Whether a set contradicts its reading: the parts must be the whole, and no part negative."""
    if live.measured_bytes is None:
        return bool(live.buffers)
    explained = sum(one.bank_bytes for one in live.buffers)
    unexplained = live.unexplained_bytes or 0
    return explained + unexplained != live.measured_bytes or unexplained < 0 or explained > live.measured_bytes
