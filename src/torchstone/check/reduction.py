"""Delta debugging: the smallest group of steps that still fails.

Every try costs a process that compiles and runs: the search halves from both ends before it drops single steps.
"""

from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[int]], bool]


def smallest_failing(steps: Sequence[int], fails: Fails, *, most_runs: int) -> tuple[int, ...]:
    """Some of the steps that fail together; without any one of them the others pass, if the runs sufficed.

    `fails` is only asked about groups of the given steps, each group at most once; the whole is known to fail.
    """
    asked = _CountedRuns(fails, most_runs)
    group = list(steps)
    group = group[: _first_end(group, asked)]
    group = group[_last_start(group, asked) :]
    return tuple(_minimized(group, asked))


class _CountedRuns:
    """Remembers what was asked, and answers no when the runs are used up: the group stays as it was."""

    def __init__(self, fails: Fails, most_runs: int) -> None:
        self._fails = fails
        self._left = most_runs
        self._known: dict[tuple[int, ...], bool] = {}

    def __call__(self, group: Sequence[int]) -> bool:
        key = tuple(group)
        if not key:
            return False
        if key not in self._known:
            if self._left == 0:
                return False
            self._left -= 1
            self._known[key] = self._fails(key)
        return self._known[key]


def _first_end(group: Sequence[int], fails: Fails) -> int:
    """The shortest beginning that fails, by halving."""
    passes, broken = 0, len(group)
    while broken - passes > 1:
        middle = (passes + broken) // 2
        if fails(group[:middle]):
            broken = middle
        else:
            passes = middle
    return broken


def _last_start(group: Sequence[int], fails: Fails) -> int:
    """The latest place from which on it fails, by halving."""
    broken, passes = 0, len(group)
    while passes - broken > 1:
        middle = (passes + broken) // 2
        if fails(group[middle:]):
            broken = middle
        else:
            passes = middle
    return broken


def _minimized(group: list[int], fails: Fails) -> list[int]:
    """Drop stretches, then single steps, as long as the rest still fails."""
    length = max(1, len(group) // 2)
    while True:
        start = 0
        while start < len(group) and len(group) > 1:
            rest = group[:start] + group[start + length :]
            if fails(rest):
                group = rest
            else:
                start += length
        if length == 1:
            return group
        length = max(1, length // 2)
