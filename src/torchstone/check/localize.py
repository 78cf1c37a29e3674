"""Localize a failure: modules from the root down, then steps of the graph that the backend receives, with a proof.

A finding is a claim about cause and effect, and both halves are tried: on the backend alone it fails; computed by eager
inside the graph that fails, the graph passes. What does not survive this is reported as not proven.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from torchstone.backends.failures import WRITES_TO_INPUT
from torchstone.check.causes import DEADLY, NOTHING_SMALLER, Cause, CauseFinder, GraphUnderTest
from torchstone.check.plan import Plan, Unit, Walk, occurrence_units, roots_of
from torchstone.check.requests import Requests
from torchstone.check.runner import Request, Runner, fails_alike, status_of
from torchstone.check.settings import Granularity, Settings
from torchstone.check.unit_graphs import UnitGraph, UnitGraphs
from torchstone.record.base import Record
from torchstone.record.check import FAILED_STATUSES, Blame, Outcome, UnitResult
from torchstone.record.task import Limits
from torchstone.record.trace import Trace

_SHORTEST_DEADLINE_S = 15.0
_MOST_CONTROLS = 3
_ANY_OP = "every op that was tried alone fails so: it is how the backend treats its inputs, not an op"
_VARIES = "what one process computes another one does not: no part of it can be blamed by runs that do not repeat"
_MORE_PROCESSES = 3
_SAME_ERROR = 1.1  # a factor between errors that one process and another one may have
_PATIENCE = 20.0  # the limit of a try of a hang, in multiples of the longest run that ended

# Records the values of module calls; gives those whose arguments cannot be written, None where nothing can be recorded.
RecordRows = Callable[[Sequence[int]], Mapping[str, str] | None]


class TriedOp(Record, frozen=True, kw_only=True):
    """A step that ran alone: the one that stood for its configuration, and how it ended."""

    unit: str
    place: int
    result: UnitResult


class Search:
    """One search; each stage needs the ones before it."""

    def __init__(
        self, trace: Trace, found: Plan, requests: Requests, runner: Runner, settings: Settings,
        record_rows: RecordRows = lambda _: None,
    ) -> None:  # fmt: skip
        self.walk = Walk(found.nodes, roots_of(found, settings.only), max_depth=settings.max_depth)
        self.results: dict[str, UnitResult] = {}  # by unit
        self.units: dict[str, Unit] = dict(found.units)  # with those of further occurrences
        self.ops: dict[str, TriedOp] = {}  # by signature
        self.causes: list[Cause] = []
        self.top_passes: bool | None = None  # with everything at fault computed by eager; None: not tried
        self.assumed_equal: bool | None = None  # whether steps like those at fault are at fault, too
        self._trace = trace
        self._plan = found
        self.requests = requests
        self._runner = runner
        self._settings = settings
        self._record_rows = record_rows
        self.graphs = UnitGraphs(trace, requests, runner)

    def run(self) -> None:
        """All stages that were asked for."""
        self.try_modules()
        self.try_occurrences()
        if self._settings.granularity is Granularity.OP:
            self._limit_tries()
            tops = [unit for unit in self.top_units() if self._any_op_fails_so(unit)]
            if tops:
                self.causes = [self._of_module(unit, _ANY_OP) for unit in tops]
                return
            self.explain_innermost()
            self.explain_tops()
            if not all(cause.proven for cause in self.causes):
                self._find_varying()
        else:
            self.causes = [self._of_module(unit) for unit in self._innermost()]

    # --- modules ---

    def try_modules(self) -> None:
        """Walk the tree; what passes vouches for all below it, unless its error is suspicious."""
        for name in self.walk.begin():
            self._runner.ask(self.requests.for_unit(self.units[name]))
        for asked, result in self._runner.answers():
            name = asked.removeprefix("unit:")
            self.results[name] = result
            for following in self.walk.tell(name, status_of(result), doubted=result.suspicious):
                self._runner.ask(self._tried_once(self.requests.for_unit(self.units[following])))

    def _tried_once(self, request: Request) -> Request:
        """A request as it is; where a hang is known, what is inside of it is not run a second time to be sure."""
        if not any(result.outcome is Outcome.TIMED_OUT for result in self.results.values()):
            return request
        limits = msgspec.structs.replace(self._settings.limits, retries_timeout=False)
        return msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, limits=limits))

    def try_occurrences(self) -> None:
        """Where a module fails and nothing in it does, what was only assumed of its identical parts is tried."""
        ahead = [unit for unit in self.failed_units() if not self._failed_inside(unit)]
        if self._settings.every:
            ahead = self.failed_units()
        while ahead:
            unit = ahead.pop(0)
            inner = [
                one
                for one in occurrence_units(self._trace, self._plan, unit)
                if one.row not in {known.row for known in self.units.values() if known.id in self.results}
                and self.walk.is_within_depth(one.module)
            ]
            unwritten = self._record_rows([one.row for one in inner]) if inner else None
            if unwritten is None:
                continue
            self.requests.add_unwritten(unwritten)
            for one in inner:
                self.units[one.id] = one
                self._runner.ask(self.requests.for_unit(one))
            for asked, result in self._runner.answers():
                name = asked.removeprefix("unit:")
                self.results[name] = result
                self.walk.add(self.units[name].module, status_of(result))
                if status_of(result) in FAILED_STATUSES:
                    ahead.append(self.units[name])

    def failed_units(self) -> list[Unit]:
        """The calls that failed, in the order of the modules."""
        return [
            unit
            for unit in self.units.values()
            if unit.id in self.results and status_of(self.results[unit.id]) in FAILED_STATUSES
        ]

    def _innermost(self) -> list[Unit]:
        """The failed calls inside of which no module fails."""
        return [unit for unit in self.failed_units() if not self._failed_inside(unit)]

    def _failed_inside(self, unit: Unit) -> bool:
        """Whether something that the call makes failed: the very call, or an identical one."""
        return self.walk.has_failure_below(unit.module) and any(
            other.id != unit.id and self._is_inside(other, unit) for other in self.failed_units()
        )

    def _is_inside(self, inner: Unit, outer: Unit) -> bool:
        calls = self._trace.module_calls
        first, end = calls.first_ops[outer.row], calls.end_ops[outer.row]
        own = first <= calls.first_ops[inner.row] and calls.end_ops[inner.row] <= end and inner.row > outer.row
        return own or inner.module in self.walk.below(outer.module)

    # --- steps of the graph ---

    def _any_op_fails_so(self, unit: Unit) -> bool:
        """Whether the backend writes to whatever it is given: some of the most different ops are tried, each alone."""
        whole = self.results[unit.id]
        if not whole.reason.startswith(WRITES_TO_INPUT):
            return False
        graph = self.graphs.of(unit)
        first = {graph.steps[place].op: place for place in graph.candidates(whole.outcome)}
        groups = [(place,) for place in first.values()]
        tried = self.graphs.run_each(unit, groups[:_MOST_CONTROLS])
        return len(tried) > 1 and all(self._is_alike(one, whole) for one in tried)

    def explain_innermost(self) -> None:
        """The causes in each failed call that has no failed call inside."""
        for unit in self._innermost():
            self.explain(unit)

    def explain_tops(self) -> None:
        """The whole, with all causes computed by eager: it must pass, or there is something more."""
        tops = self.top_units()
        if not tops or not any(cause.places for cause in self.causes):
            return
        if not self._pass_without(tops, self.causes):
            between = [unit for unit in self.failed_units() if unit not in tops and self._failed_inside(unit)]
            for unit in (*reversed(between), *tops):
                self.explain(unit)
        proven = [cause for cause in self.causes if cause.proven]
        if proven and self._pass_without(tops, proven):  # what is not proven is not needed either
            self.causes = self._needed(tops, proven)
            self.top_passes = True
            return
        open_ones = [cause for cause in self.causes if cause.places and not cause.refuted]
        self.top_passes = bool(open_ones) and self._pass_without(tops, open_ones)
        if self.top_passes:
            self.causes = self._needed(tops, open_ones)

    def _needed(self, tops: Sequence[Unit], causes: Sequence[Cause]) -> list[Cause]:
        """The causes, each op tried once more: the whole must fail when only this one is left on the backend."""
        groups: dict[tuple[str, ...], list[Cause]] = {}
        for cause in causes:
            groups.setdefault(self.ops_of(cause), []).append(cause)
        found = []
        for group in groups.values():
            others = [cause for cause in causes if cause not in group]
            needed = not others or not self._pass_without(tops, others)
            note = "" if needed else "the model passes with this on the backend"
            said = "with only this on the backend beside what works, the model fails" if others else ""
            for cause in group:
                proof = (*cause.proof, said) if needed and said else cause.proof
                found.append(msgspec.structs.replace(cause, proven=needed, note=note, proof=proof))
        return found

    def _pass_without(self, tops: Sequence[Unit], causes: Sequence[Cause]) -> bool:
        """Whether the whole passes with these computed by eager: where they were found, or wherever they stand."""
        return all(self._passes_without(unit, [cause for cause in causes if cause.places]) for unit in tops)

    def explain(self, unit: Unit) -> None:
        """Find causes in the graph of a call until it passes with all of them computed by eager."""
        graph = self.graphs.of(unit)
        known = self._known_places(graph, self.causes)
        whole = self.graphs.without(unit, known) if known else self._whole(unit, graph)
        if whole is None or (not known and not self._is_alike(whole, self.results[unit.id])):
            self.causes.append(self._of_module(unit, _no_graph_reason(graph, whole)))
            return
        if not whole.failed:
            return
        about = GraphUnderTest(self.graphs, unit, self._path_of(unit))
        finder = CauseFinder(about, known, self.causes, most_runs=self._settings.most_bisecting_runs)
        finder.search(whole)
        for places, result in finder.tried.items():
            if len(places) == 1:
                self._keep_tried(unit, places[0], result)
        self.causes += finder.causes() or [self._of_module(unit, finder.note or NOTHING_SMALLER)]

    def _find_varying(self) -> None:
        """What nothing explains may not be the same in every process: it runs again before anything is blamed."""
        varying = {unit.id: result for unit in self.top_units() if (result := self._differing_again(unit)) is not None}
        if varying:
            tops = [self.units[name] for name in varying]
            self.results |= varying
            self.causes = [one for one in self.causes if one.proven] + [self._of_module(unit, _VARIES) for unit in tops]

    def _differing_again(self, unit: Unit) -> UnitResult | None:
        """The result of a unit as one that varies; None where further processes say the same."""
        first = self.results[unit.id]
        if first.outcome is Outcome.VARIES or first.outcome in DEADLY:
            return None
        others = [self._runner.answer(self.requests.again(unit, number)) for number in range(_MORE_PROCESSES)]
        right = sum(one.outcome is Outcome.PASSED for one in others)
        if not any(one.outcome is Outcome.PASSED or _far_apart(one, first) for one in others):
            return None
        reason = f"other processes give other values: {right} of {len(others) + 1} are right"
        return msgspec.structs.replace(first, outcome=Outcome.VARIES, reason=reason)

    def _whole(self, unit: Unit, graph: UnitGraph) -> UnitResult | None:
        """The whole graph on the backend; what cannot have failed so stays with eager."""
        candidates = graph.candidates(self.results[unit.id].outcome)
        return self.graphs.run(unit, candidates) if candidates else None

    def _passes_without(self, unit: Unit, causes: Sequence[Cause]) -> bool:
        graph = self.graphs.of(unit)
        everywhere = self._known_places(graph, causes)
        tried = {call for cause in causes for call in self.calls_of(cause)}
        exact = {place for place, step in enumerate(graph.steps) if tried.intersection(step.op_calls)}
        if self.assumed_equal is not True and exact and exact <= everywhere:
            passes = self.graphs.without(unit, exact).outcome is Outcome.PASSED
            if self.assumed_equal is None:
                self.assumed_equal = not passes
            if passes:
                return True
        return bool(everywhere) and self.graphs.without(unit, everywhere).outcome is Outcome.PASSED

    def _known_places(self, graph: UnitGraph, causes: Sequence[Cause]) -> set[int]:
        """Where a graph has what was found to be at fault, here or elsewhere."""
        places: set[int] = set()
        for cause in causes:
            if cause.places:
                other = self.graphs.of(self.units[cause.unit])
                places.update(*graph.places_like(other, cause.places, same_sizes=True))
        return places

    def calls_of(self, cause: Cause) -> tuple[int, ...]:
        """The op calls of the trace that a cause consists of, where it was found."""
        steps = self.graphs.of(self.units[cause.unit]).steps if cause.places else ()
        return tuple(call for place in cause.places for call in steps[place].op_calls)

    def top_units(self) -> list[Unit]:
        """The failed calls that the walk began at; where those passed or were not judged, the outermost that failed."""
        failed = self.failed_units()
        roots = [unit for unit in failed if unit.module in self.walk.roots and "#" not in unit.id]
        return roots or [
            unit for unit in failed if not any(one is not unit and self._is_inside(unit, one) for one in failed)
        ]

    def everywhere(self, cause: Cause) -> set[tuple[str, tuple[int, ...]]]:
        """Every place of the whole that a cause concerns, with the op calls it comes down to."""
        own = self.graphs.of(self.units[cause.unit])
        mine = set(self.calls_of(cause))
        found: set[tuple[str, tuple[int, ...]]] = set()
        for unit in self.top_units() if cause.places else ():
            graph = self.graphs.of(unit)
            for match in graph.places_like(own, cause.places, same_sizes=True):
                calls = tuple(call for place in match for call in graph.steps[place].op_calls)
                if self.assumed_equal is not False or mine.intersection(calls):
                    found.add((f"{unit.id}:{match}", calls))
        return found or {(f"{cause.unit}:{cause.places}", self.calls_of(cause))}

    def arguments_of(self, cause: Cause) -> str:
        """The arguments of the ops of a cause."""
        steps = self.graphs.of(self.units[cause.unit]).steps
        return "; ".join(steps[place].arguments for place in cause.places)

    def ops_of(self, cause: Cause) -> tuple[str, ...]:
        """The ops of a cause in order."""
        steps = self.graphs.of(self.units[cause.unit]).steps
        return tuple(steps[place].op for place in cause.places)

    def line_of(self, cause: Cause) -> str:
        """The line of code that calls the last op of a cause, where the graph knows it."""
        steps = self.graphs.of(self.units[cause.unit]).steps
        return steps[cause.places[-1]].line if cause.places else ""

    def _path_of(self, unit: Unit) -> str:
        return self._trace.modules[self._trace.module_calls.modules[unit.row]].path

    def _keep_tried(self, unit: Unit, place: int, result: UnitResult) -> None:
        signature = self.graphs.of(unit).steps[place].signature
        if signature not in self.ops or (result.failed and not self.ops[signature].result.failed):
            self.ops[signature] = TriedOp(unit=unit.id, place=place, result=result)

    def _is_alike(self, result: UnitResult, other: UnitResult) -> bool:
        return result.failed and fails_alike(result, other)

    def _of_module(self, unit: Unit, note: str = "") -> Cause:
        return Cause(
            blame=Blame.MODULE, module=unit.module, unit=unit.id, row=unit.row, places=(),
            result=self.results[unit.id], note=note,
        )  # fmt: skip

    def _limit_tries(self) -> None:
        """A hang costs its deadline in every try: as much as the runs that ended took, many times over, is enough."""
        given = self._settings.limits
        if any(result.outcome is Outcome.TIMED_OUT for result in self.results.values()):
            ended = [one.elapsed_s for one in self.results.values() if one.outcome is not Outcome.TIMED_OUT]
            enough_s = max(_SHORTEST_DEADLINE_S, _PATIENCE * max(ended, default=0.0))
            self.graphs.limits = Limits(
                deadline_s=min(given.deadline_s, enough_s), memory_bytes=given.memory_bytes,
                kept_output_bytes=given.kept_output_bytes, retries_timeout=False,
            )  # fmt: skip


def _far_apart(one: UnitResult, other: UnitResult) -> bool:
    """Whether two wrong results are wrong by other amounts."""
    errors = [result.numbers.relative_l2 for result in (one, other) if result.numbers is not None]
    known = sorted(error for error in errors if error is not None)
    return one.outcome is other.outcome and len(known) == len((one, other)) and known[1] > _SAME_ERROR * known[0]


def _no_graph_reason(graph: UnitGraph, whole: UnitResult | None) -> str:
    if graph.why:
        return f"the backend gets no graph of it: {graph.why}"
    if whole is None:
        return "it calls no op"
    if whole.failed:
        return f"its ops fail in another way: {whole.reason}"
    if whole.reason:
        return f"its ops could not be judged: {whole.reason}"
    if graph.complex_ends:
        return (
            "its ops pass when complex tensors enter and leave as pairs of real numbers: the backend takes none as such"
        )
    return "its ops pass as one graph: what fails is the way the backend reads the module's code"
