"""The causes in one graph that fails: found by reduction, and proven by computing them with eager inside the graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchstone.check.plan import Unit
from torchstone.check.reduction import smallest_failing
from torchstone.check.runner import fails_alike
from torchstone.check.unit_graphs import UnitGraphs
from torchstone.record.base import Record
from torchstone.record.check import Blame, Outcome, UnitResult

DEADLY = frozenset({Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY})  # nothing else can run beside them
_MOST_ROUNDS = 12  # of finding one cause more in a graph that still fails
_LARGEST_FUSION = 3  # of a larger group it is tried whether only its size matters
_MOST_OTHERS = 2
_MOST_STEPS = 12  # a group that is larger is no cause anyone can act on


class Cause(Record, frozen=True, kw_only=True):
    """The narrowest thing that fails in a module."""

    blame: Blame
    module: str
    unit: str
    row: int
    places: tuple[int, ...]  # steps of the graph of the unit; none when the module itself fails
    result: UnitResult
    note: str = ""
    proven: bool = False
    proof: tuple[str, ...] = ()  # what was tried, a sentence each
    refuted: bool = False  # a try spoke against it: no later one proves it


@dataclass(frozen=True, slots=True)
class GraphUnderTest:
    """The graph of a unit, and the path of its module."""

    graphs: UnitGraphs
    unit: Unit
    where: str


class CauseFinder:
    """The causes in one graph that fails although what was known before is computed by eager."""

    def __init__(
        self, about: GraphUnderTest, known: Iterable[int], earlier: Sequence[Cause], *, most_runs: int
    ) -> None:
        self._graphs = about.graphs
        self._unit = about.unit
        self._where = about.where or "the model"
        self._graph = about.graphs.of(about.unit)
        self._known = set(known)
        self._earlier = [one for one in earlier if one.places]
        self._most_runs = most_runs
        self.note = ""  # why nothing was found
        self.tried: dict[tuple[int, ...], UnitResult] = {}
        self._found: dict[tuple[int, ...], UnitResult] = {}
        self._equal: dict[tuple[int, ...], set[int]] = {}  # with the other places of the same kind, if those matter
        self._candidates: tuple[int, ...] = ()  # that may fail as the graph does
        self._passes = False  # the graph, with everything found computed by eager
        self._last: UnitResult | None = None

    def search(self, whole: UnitResult) -> None:
        """One cause after the other, as long as the graph fails without those found."""
        self._candidates = self._graph.candidates(whole.outcome)
        result = whole
        for _ in range(_MOST_ROUNDS):
            new = self._next(result)
            if not new:
                break
            for places, alone in new.items():
                self._found[places] = alone
                self._equal[places] = set(places)
            if self._replaced() >= set(self._candidates):  # nothing is left: it is all that the module computes
                self._passes = True
                break
            result = self._without_found()
            if not result.failed:
                self._passes = result.outcome is Outcome.PASSED
                break
        self._last = result

    def causes(self) -> list[Cause]:
        """What was found, each with what was tried to prove it."""
        return [self._proven(places, alone) for places, alone in self._found.items()]

    def _next(self, whole: UnitResult) -> dict[tuple[int, ...], UnitResult]:
        """What the backend names, what failed elsewhere, or the smallest group that fails as the whole does."""
        left = [place for place in self._graph.candidates(whole.outcome) if place not in self._replaced()]
        for guess in (self._named, self._like_earlier, self._deadly):
            guesses = guess(whole, left)
            tried = dict(zip(guesses, self._graphs.run_each(self._unit, guesses), strict=True))
            self.tried |= tried
            failing = {places: result for places, result in tried.items() if self._alike(result, whole)}
            if failing:
                return failing
        return self._smallest(left, whole)

    def _named(self, whole: UnitResult, left: Sequence[int]) -> list[tuple[int, ...]]:
        """The steps whose op the backend names: one for each configuration."""
        names = {_packet(name).lower() for name in whole.named_ops}
        named = [place for place in left if _packet(self._graph.steps[place].op).lower() in names]
        first = {self._graph.steps[place].signature: place for place in reversed(named)}
        return [(place,) for place in sorted(first.values())]

    def _deadly(self, whole: UnitResult, left: Sequence[int]) -> list[tuple[int, ...]]:
        """The step that ends its process when each runs alone."""
        if whole.outcome not in DEADLY:
            return []
        place = self._graphs.suspect(self._unit, left)
        return [] if place not in left or place is None else [(place,)]

    def _like_earlier(self, _whole: UnitResult, left: Sequence[int]) -> list[tuple[int, ...]]:
        """Where the ops of an earlier cause stand, with whatever sizes."""
        earlier = [(self._graphs.of_name(one.unit), one.places) for one in self._earlier]
        earlier += [(self._graph, places) for places in self._found]
        found: dict[tuple[str, ...], tuple[int, ...]] = {}
        for graph, places in earlier:
            for match in self._graph.places_like(graph, places, same_sizes=False):
                if set(match) <= set(left):
                    found.setdefault(tuple(self._graph.steps[place].signature for place in match), match)
        return list(found.values())

    def _smallest(self, left: Sequence[int], whole: UnitResult) -> dict[tuple[int, ...], UnitResult]:
        known: dict[tuple[int, ...], UnitResult] = {}

        def fails(group: Sequence[int]) -> bool:
            result = known[tuple(group)] = self._graphs.run(self._unit, group)
            return self._alike(result, whole)

        smallest = None
        if left and whole.outcome not in DEADLY:
            smallest = self._graphs.smallest(self._unit, left, whole, most_runs=self._most_runs)
        if smallest is None or (smallest and not fails(smallest)):  # a process for each try
            smallest = ()
            if left and fails(left):
                smallest = smallest_failing(left, fails, most_runs=self._most_runs)
        self.tried |= known
        if not smallest:
            self.note = _ONLY_AS_A_WHOLE
            return {}
        if len(smallest) > _MOST_STEPS:
            self.note = f"no group of fewer than {len(smallest)} steps fails: the error may add up over many of them"
            return {}
        return {smallest: known[smallest]}

    def _without_found(self) -> UnitResult:
        """The graph with what was found computed by eager; with all other steps like those, if that is not enough."""
        exact = self._graphs.without(self._unit, self._replaced())
        if not exact.failed:
            return exact
        wider = {
            places: {
                place for match in self._graph.places_like(self._graph, places, same_sizes=True) for place in match
            }
            for places in self._found
        }
        if all(wider[places] == self._equal[places] for places in self._found):
            return exact
        result = self._graphs.without(self._unit, self._known.union(*wider.values()))
        if not result.failed:
            self._equal = wider
        return result

    def _all_like(self, places: tuple[int, ...]) -> set[int]:
        matches = self._graph.places_like(self._graph, places, same_sizes=True)
        return {place for match in matches for place in match}

    def _proven(self, places: tuple[int, ...], alone: UnitResult) -> Cause:
        """Without it among what eager computes, the graph must fail again; with it, pass."""
        others = self._known.union(*(equal for other, equal in self._equal.items() if other != places))
        proof = [f"alone on the backend, with everything else computed by eager: {alone.outcome.value}"]
        what = self._where
        proven, refuted, note = self._passes, False, ""
        if not self._passes:
            note = f"{what} does not pass with this computed by eager: {self._last.reason if self._last else ''}"
        elif others and self._graphs.without(self._unit, others).outcome is Outcome.PASSED:
            proven, refuted, note = False, True, f"{what} also passes with this on the backend"
        elif self._replaced() >= set(self._candidates):
            proof.append(f"there is nothing else in {what}")
        elif self._is_about_size(places, alone):
            proven, refuted = False, True
            note = f"other groups of {len(places)} steps fail, too: it is the size of the graph, not these ops"
        else:
            proof.append(f"computed by eager inside {what}, everything else on the backend: passed")
        return Cause(
            blame=Blame.OP if len(places) == 1 else Blame.OPS_TOGETHER,
            module=self._unit.module, unit=self._unit.id, row=self._unit.row, places=places, result=alone,
            note=note, proven=proven, proof=tuple(proof), refuted=refuted,
        )  # fmt: skip

    def _is_about_size(self, places: tuple[int, ...], alone: UnitResult) -> bool:
        """Whether a large group fails for no reason of its own: then others as large fail, too."""
        if len(places) <= _LARGEST_FUSION:
            return False
        windows = [
            self._candidates[start : start + len(places)]
            for start in range(0, len(self._candidates) - len(places) + 1, max(1, len(places) // 2))
        ]
        others = [window for window in windows if 2 * len(set(window) & set(places)) <= len(places)][:_MOST_OTHERS]
        return any(self._alike(result, alone) for result in self._graphs.run_each(self._unit, others))

    def _replaced(self) -> set[int]:
        return self._known.union(*self._equal.values())

    def _alike(self, result: UnitResult, whole: UnitResult) -> bool:
        return result.failed and fails_alike(result, whole)


NOTHING_SMALLER = "no part of its graph fails alone"
_ONLY_AS_A_WHOLE = (
    "its steps pass when what is between them is exposed: the failure needs the whole, or values that are already wrong"
)


def _packet(op: str) -> str:
    """aten.softmax.int, onnx.Softmax and softmax as softmax."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else parts[0]
