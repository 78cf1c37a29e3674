"""The first of several environments, oldest first, in which something fails: a search that tries few of them."""

from collections.abc import Callable, Sequence

from torchstone.errors import InputError
from torchstone.record.base import Record

PASSES, FAILS = ("passes",), ("fails", "hangs")
_FEWEST = 2


class Tried(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One environment in which it was tried."""

    python: str
    version: str  # of the backend there
    state: str  # passes, fails, hangs, could not run
    detail: str = ""


class Bisected(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a bisection found."""

    verdict: str  # one sentence
    last_good: str = ""  # interpreter; "" where none passes
    first_bad: str = ""  # interpreter; "" where none fails
    tried: tuple[Tried, ...] = ()
    fails: bool = True  # somewhere, or it is not known


def search_environments(
    pythons: Sequence[str], try_in: Callable[[str], Tried], *, say: Callable[[str], None] = lambda _: None
) -> Bisected:
    """Find the first bad environment, halving between both ends.

    The pair that is named was tried: the first bad one failed and the last good one before it passed. Environments in
    which it cannot be tried are passed over. Raises InputError for fewer than two environments.
    """
    if len(pythons) < _FEWEST:
        msg = "give two or more --python, the environment with the oldest version first"
        raise InputError(msg)
    search = _Search(pythons, try_in, say)
    return search.result(*search.ends())


class _Search:
    """Runs environments at most once each, in the order in which they are asked for."""

    def __init__(self, pythons: Sequence[str], try_in: Callable[[str], Tried], say: Callable[[str], None]) -> None:
        self._pythons, self._try_in, self._say = pythons, try_in, say
        self._tried: dict[int, Tried] = {}

    def ends(self) -> tuple[int | None, int | None]:
        """The last good and the first bad environment; None where there is none."""
        order = range(len(self._pythons))
        first = next((place for place in order if self._state(place) in PASSES + FAILS), None)
        last = next((place for place in reversed(order) if self._state(place) in PASSES + FAILS), None)
        if first is None or last is None or self._state(first) in FAILS:
            return None, first
        if self._state(last) in PASSES:
            return last, None
        good, bad = first, last
        while between := [place for place in range(good + 1, bad) if self._usable(place)]:
            middle = between[len(between) // 2]
            if self._state(middle) in PASSES:
                good = middle
            elif self._state(middle) in FAILS:
                bad = middle
        return good, bad

    def result(self, good: int | None, bad: int | None) -> Bisected:
        """What was found, in words."""
        tried = tuple(self._tried[place] for place in sorted(self._tried))
        if good is None and bad is None:
            return Bisected(verdict="it could not be tried in any of these environments", tried=tried)
        if bad is None:
            assert good is not None  # noqa: S101 - one of them is known
            verdict = f"it passes in the first and in the last, {self._shown(good)}"
            return Bisected(verdict=verdict, last_good=self._pythons[good], tried=tried, fails=False)
        if good is None:
            verdict = f"it fails already in the first that could be tried, {self._shown(bad)}: give an older one"
            return Bisected(verdict=verdict, first_bad=self._pythons[bad], tried=tried)
        gap = "" if bad == good + 1 else "; those between them could not be tried"
        verdict = f"first bad: {self._shown(bad)}; it passes with {self._shown(good)}{gap}"
        return Bisected(
            verdict=verdict, last_good=self._pythons[good], first_bad=self._pythons[bad], tried=tried
        )  # fmt: skip

    def _usable(self, place: int) -> bool:
        return place not in self._tried or self._tried[place].state in PASSES + FAILS

    def _state(self, place: int) -> str:
        if place not in self._tried:
            python = self._pythons[place]
            self._say(f"running {python}")
            self._tried[place] = self._try_in(python)
        return self._tried[place].state

    def _shown(self, place: int) -> str:
        return f"{self._pythons[place]} ({self._tried[place].version})"
