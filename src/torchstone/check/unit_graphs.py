"""The graph that the backend receives for a unit, as its child describes it, and runs of some of its steps.

A step is tied to the op calls of the trace by the kernels it comes down to: that gives its module, calls and FLOPs.
"""

from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from hashlib import sha256

import msgspec

from torchstone.check.plan import Unit
from torchstone.check.requests import Requests
from torchstone.check.runner import Request, Runner
from torchstone.record.base import Record
from torchstone.record.check import Outcome, UnitResult
from torchstone.record.task import Ending, Limits, Task, TaskResult
from torchstone.record.trace import Trace

OPS = "ops"  # the recorded ops of a unit: the graph of a backend that receives none


_LONGEST_NAME = 80
_SWEEP_S = 0.5  # for each step of a sweep


class GraphStep(Record, frozen=True, kw_only=True):
    """One step of a graph, in the words of its child (see check.child.graphs)."""

    name: str
    op: str
    kernels: tuple[str, ...]
    arguments: str
    output: str
    signature: str  # equal for the same op on tensors of the same shape, type and layout
    reads: tuple[int, ...]  # steps
    module: str  # from the unit on
    line: str
    gives_tensor: bool
    has_values: bool  # False: it draws random numbers, or leaves memory unset, so that no values can be expected
    op_calls: tuple[int, ...] = ()  # of the trace


class UnitGraph(Record, frozen=True, kw_only=True):
    """The graph of a unit; several graphs where dynamo breaks the module, numbered through."""

    unit: str
    kind: str  # dynamo, export, own, ops, or "" where there is none
    why: str  # there is none
    steps: tuple[GraphStep, ...]
    complex_ends: bool = False  # it takes or gives complex tensors
    died: bool = False  # the process that was to describe it did not answer: it is not asked again

    def candidates(self, outcome: Outcome) -> tuple[int, ...]:
        """The steps that may be the cause of such an outcome; wrong values only of those whose values are known."""
        about_values = outcome in (Outcome.WRONG, Outcome.VARIES)
        return tuple(
            number
            for number, step in enumerate(self.steps)
            if step.gives_tensor and (step.has_values or not about_values)
        )

    def places_like(self, other: "UnitGraph", places: Sequence[int], *, same_sizes: bool) -> list[tuple[int, ...]]:
        """Where this graph has the steps of another one, tied to each other in the same way."""
        wanted = [other.steps[place] for place in places]
        tied = [[before in wanted[late].reads for before in places[:late]] for late in range(len(places))]
        found: list[tuple[int, ...]] = []

        def is_like(place: int, step: GraphStep) -> bool:
            here = self.steps[place]
            return here.signature == step.signature if same_sizes else here.op == step.op

        def extend(chosen: tuple[int, ...]) -> bool:
            """Whether a whole match begins with these."""
            if len(chosen) == len(wanted):
                found.append(chosen)
                return True
            for place in range(chosen[-1] + 1 if chosen else 0, len(self.steps)):
                ties = [before in self.steps[place].reads for before in chosen]
                fits = is_like(place, wanted[len(chosen)]) and ties == tied[len(chosen)]
                if fits and extend((*chosen, place)) and chosen:  # the first match for each beginning
                    return True
            return False

        extend(())
        return found


class UnitGraphs:
    """Asks for the graphs of units, each once, and runs parts of them."""

    def __init__(self, trace: Trace, requests: Requests, runner: Runner) -> None:
        self._trace = trace
        self._requests = requests
        self._runner = runner
        self._graphs: dict[str, UnitGraph] = {}
        self.kind = ""  # of the backend, once it is known
        self.limits: Limits | None = None

    def of(self, unit: Unit) -> UnitGraph:
        """The graph of a unit, or its recorded ops where the backend receives no graph."""
        if unit.id not in self._graphs:
            found = self._described(unit, self.kind)
            self.kind = self.kind or found.kind or (OPS if found.died else "")
            if not found.steps and found.kind != OPS:  # it ended the process, or cannot be traced
                found = msgspec.structs.replace(self._described(unit, OPS), why=found.why)
            self._graphs[unit.id] = found
        return self._graphs[unit.id]

    def of_name(self, unit: str) -> UnitGraph:
        """The graph of a unit that was asked for before."""
        return self._graphs[unit]

    def run(self, unit: Unit, places: Collection[int]) -> UnitResult:
        """Only these steps on the backend, on what eager gives them."""
        return self._answer(unit, f"only:{unit.id}:{named_places(sorted(places))}", "run_steps", chosen=places)

    def without(self, unit: Unit, places: Collection[int]) -> UnitResult:
        """The graph on the backend, these steps by eager inside it."""
        return self._answer(unit, f"without:{unit.id}:{named_places(sorted(places))}", "run_without", replaced=places)

    def run_each(self, unit: Unit, groups: Sequence[tuple[int, ...]]) -> list[UnitResult]:
        """Several groups of steps, side by side."""
        names = {f"only:{unit.id}:{named_places(sorted(group))}": group for group in groups}
        for name, group in names.items():
            self._runner.ask(self._request(unit, name, "run_steps", chosen=group))
        results = dict(self._runner.answers())
        return [results[f"only:{unit.id}:{named_places(sorted(group))}"] for group in groups]

    def smallest(
        self, unit: Unit, places: Sequence[int], whole: UnitResult, *, most_runs: int
    ) -> tuple[int, ...] | None:
        """The smallest group that fails as the whole, tried in one process; None where that process did not answer."""
        task = self.task(
            unit, f"smallest:{unit.id}", "torchstone.check.child.graphs:reduce_steps", chosen_steps=list(places),
            whole={"outcome": whole.outcome.value, "reason": whole.reason}, most_runs=most_runs,
        )  # fmt: skip
        ended = self._runner.fetch(task)
        if ended.ending is not Ending.ANSWERED or not isinstance(ended.answer, dict):
            return None
        return tuple(ended.answer["smallest"])

    def suspect(self, unit: Unit, places: Sequence[int]) -> int | None:
        """The first of these steps that ends its process when it runs alone, each kind once; None: none of them does.

        One process tries them all, so a hang costs one deadline, not one for every try of a search.
        """
        steps = self.of(unit).steps
        kinds = {steps[place].signature: place for place in reversed(places)}
        progress = self._requests.progress_file(unit)
        progress.unlink(missing_ok=True)
        task = self.task(
            unit, f"sweep:{unit.id}", "torchstone.check.child.graphs:sweep_steps",
            chosen_steps=sorted(kinds.values()), progress=str(progress),
        )  # fmt: skip
        if self.limits is not None:
            longer_s = self.limits.deadline_s + _SWEEP_S * len(kinds)
            task = msgspec.structs.replace(task, limits=msgspec.structs.replace(self.limits, deadline_s=longer_s))
        ended = self._runner.fetch(task)
        if ended.ending is Ending.ANSWERED or not progress.is_file():
            return None
        return int(progress.read_text(encoding="ascii") or -1)

    def task(self, unit: Unit, name: str, entry: str, **more: object) -> Task:
        """A task about the graph of a unit."""
        graph = self._graphs.get(unit.id)
        kind = graph.kind if graph is not None else self.kind
        return self._requests.for_graph(unit, name, entry, kind=kind, **more).task

    def _answer(self, unit: Unit, name: str, entry: str, **places: Collection[int]) -> UnitResult:
        return self._runner.answer(self._request(unit, name, entry, **places))

    def _request(self, unit: Unit, name: str, entry: str, **places: Collection[int]) -> Request:
        steps = {f"{key}_steps": sorted(value) for key, value in places.items()}
        request = self._requests.for_graph(
            unit, name, f"torchstone.check.child.graphs:{entry}", kind=self.of(unit).kind, **steps
        )
        if self.limits is None:
            return request
        return msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, limits=self.limits))

    def _described(self, unit: Unit, kind: str) -> UnitGraph:
        name = f"graph:{unit.id}:{kind}"
        request = self._requests.for_graph(unit, name, "torchstone.check.child.graphs:describe_graph", kind=kind)
        ended: TaskResult = self._runner.fetch(request.task)
        if ended.ending is not Ending.ANSWERED or not isinstance(ended.answer, dict):
            why = ended.evidence.error or ended.evidence.signal or ended.ending.value
            return UnitGraph(unit=unit.id, kind="", why=why, steps=(), died=True)
        steps = msgspec.convert(ended.answer["steps"], tuple[GraphStep, ...])
        tied = _tied_to_trace(self._trace, unit.row, steps)
        return UnitGraph(
            unit=unit.id, kind=ended.answer["kind"], why=ended.answer["why"], steps=tied,
            complex_ends=ended.answer.get("complex_ends", False),
        )  # fmt: skip


def _tied_to_trace(trace: Trace, row: int, steps: Sequence[GraphStep]) -> tuple[GraphStep, ...]:
    """The steps with the op calls of the trace that their kernels are."""
    call = trace.module_calls[row]
    names = [trace.ops.signatures[trace.ops.signature_of[index]].op for index in range(call.first_op, call.end_op)]
    owners = [number for number, step in enumerate(steps) for _ in step.kernels]
    kernels = [name for step in steps for name in step.kernels]
    found: dict[int, list[int]] = {}
    for match in SequenceMatcher(None, names, kernels, autojunk=False).get_matching_blocks():
        for offset in range(match.size):
            found.setdefault(owners[match.b + offset], []).append(call.first_op + match.a + offset)
    return tuple(
        msgspec.structs.replace(step, op_calls=tuple(found.get(number, ()))) for number, step in enumerate(steps)
    )


def named_places(places: Sequence[int]) -> str:
    """3, 4, 5, 9 as 3..5-9: short enough for a name."""
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][-1] == place - 1:
            found[-1] = [found[-1][0], place]
        else:
            found.append([place])
    text = "-".join("..".join(map(str, one)) for one in found)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}~{sha256(text.encode()).hexdigest()[:12]}"
