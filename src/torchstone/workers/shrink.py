"""The search for smaller sizes of a failing case, shared by check and sweep.

A case is known by its sizes: every equal size of its shapes is changed alike, so that a product of matrices stays one.
The caller runs candidates in processes of their own and says which is the first that fails as the original did.
"""

from collections.abc import Callable, Iterator, Sequence

Sizes = dict[int, int]  # a size of the original shapes -> the size it has now
FirstFailing = Callable[[Sequence[Sizes]], int | None]  # the place of the first candidate that fails alike

_SMALL = (1, 2, 8)


def shrink_sizes(
    shapes: Sequence[Sequence[int]], first_failing: FirstFailing, *, most_runs: int, passes: int = 1
) -> Sizes:
    """The smallest sizes found to fail alike: all of them at once where that works, else one after the other.

    A further pass may shrink a size that another one held up; there is none after a pass that changed nothing.
    """
    search = _Search(first_failing, most_runs)
    every = sorted({size for shape in shapes for size in shape if size > 1}, reverse=True)
    together = [{size: target for size in every if size > target} for target in (1, 2)]
    found = search.first([sizes for sizes in together if sizes])
    if found is not None:
        return found
    sizes: Sizes = {}
    for _ in range(passes):
        before = dict(sizes)
        for size in every:
            sizes = _shrink_one(size, sizes, search)
        if sizes == before:
            break
    return sizes


def one_by_one(still_fails: Callable[[Sizes], bool]) -> FirstFailing:
    """Run the candidates in their order, and none after the first that fails."""
    return lambda candidates: next((place for place, sizes in enumerate(candidates) if still_fails(sizes)), None)


class _Search:
    """Counts runs, and hands out no candidate twice: those behind the first failing one need no run."""

    def __init__(self, first_failing: FirstFailing, most_runs: int) -> None:
        self._first_failing = first_failing
        self._left = most_runs
        self._tried: list[Sizes] = []

    def first(self, candidates: Sequence[Sizes]) -> Sizes | None:
        fresh = [sizes for sizes in candidates if sizes not in self._tried][: self._left]
        if not fresh:
            return None
        place = self._first_failing(fresh)
        runs = len(fresh) if place is None else place + 1
        self._left -= runs
        self._tried += fresh[:runs]
        return None if place is None else fresh[place]


def _shrink_one(size: int, sizes: Sizes, search: _Search) -> Sizes:
    """Small sizes first, as most failures do not need large ones; then halve for as long as it fails."""
    now = sizes.get(size, size)
    found = search.first([{**sizes, size: target} for target in _targets(now)])
    while found is not None and found[size] > _SMALL[-1]:
        sizes = found
        found = search.first([{**sizes, size: sizes[size] // 2}])
    return sizes if found is None else found


def _targets(size: int) -> Iterator[int]:
    yield from (target for target in _SMALL if target < size)
    if size // 2 > max((target for target in _SMALL if target < size), default=0):
        yield size // 2
