"""A running lane + its limits -> whether it has to be stopped, and why."""

import os

from torchstone.record.task import Ending
from torchstone.units import show_bytes
from torchstone.workers.lane import Lane
from torchstone.workers.memory_watch import census, resident_bytes, tree_bytes

MOST_THREADS = max(1_000, 16 * (os.cpu_count() or 1))  # of all processes of a task together
SHOWING_S = 1.0  # what a hanging task gets at most to print where it hangs
QUIET_S = 0.05  # after its last words it has said all
CENSUS_S = 0.25


class Watch:
    """Looks at running lanes, often and cheaply."""

    def __init__(self) -> None:
        self._next_census_s = 0.0

    def take_census(self, lanes: list[Lane], now_s: float) -> None:
        """Now and then, see which processes each lane has started."""
        if now_s < self._next_census_s:
            return
        self._next_census_s = now_s + CENSUS_S
        found = census([lane.pid for lane in lanes if lane.pid])
        for lane in lanes:
            lane.members = found.get(lane.pid or 0, {})


def overdue_s(lane: Lane, now_s: float) -> float:
    """How long ago the running task's deadline was; negative: not yet."""
    return now_s - lane.began_s - lane.jobs[0].limits.deadline_s


def has_shown(lane: Lane, now_s: float) -> bool:
    """Whether a task that was asked where it hangs has told it, or will not."""
    assert lane.shown_s is not None  # noqa: S101 - it was asked
    if lane.output.seen_bytes > lane.heard_bytes:
        lane.heard_bytes, lane.heard_s = lane.output.seen_bytes, now_s
    told = lane.heard_s is not None and now_s - lane.heard_s > QUIET_S
    return told or now_s - lane.shown_s > SHOWING_S


def breach(lane: Lane, memory_bytes: int | None) -> tuple[Ending, str] | None:
    """Why a lane must be stopped before its deadline, if it must."""
    threads = sum(lane.members.values())
    if threads > MOST_THREADS:
        return (
            Ending.CRASHED,
            f"it had {threads:,} threads in {len(lane.members):,} processes; {MOST_THREADS:,} are allowed",
        )
    if memory_bytes is None or lane.pid is None:
        return None
    resident = resident_bytes(lane.pid)
    alone = len(lane.members) <= 1
    if alone and (resident is None or resident <= memory_bytes + lane.resident_before_bytes):
        return None  # the quick look says more than there is: it counts mapped files
    own = tree_bytes(lane.pid, lane.members)
    if own is None or own <= memory_bytes + lane.own_before_bytes:
        return None
    used = show_bytes(own - lane.own_before_bytes)
    return Ending.OUT_OF_MEMORY, f"it held {used} and was allowed {show_bytes(memory_bytes)}"
