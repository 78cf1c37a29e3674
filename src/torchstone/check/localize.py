"""Localize a failure: modules from the root down, then single ops, then the smallest failing group of ops."""

from collections.abc import Callable, Sequence

from torchstone.check.plan import Plan, Unit, Walk, roots_of
from torchstone.check.programs import CallProgram
from torchstone.check.requests import Requests
from torchstone.check.runner import Runner, fails_alike, status_of
from torchstone.check.settings import Granularity, Settings
from torchstone.record.base import Record
from torchstone.record.check import FAILED_STATUSES, Blame, UnitResult
from torchstone.record.trace import Trace

# --- The smallest failing group of steps ---
# Every try costs a process that compiles and runs: the search halves from both ends before it drops single steps.


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


# --- The search: modules from the root down, then single ops, then ops that fail only together ---


_MOST_GUESSES = 4  # before a group of ops is searched for from scratch


class TriedOp(Record, frozen=True, kw_only=True):
    """An op configuration that ran alone: the call that stood for it, and how it ended."""

    signature: int
    module: str
    row: int
    place: int  # its step in the program of the row
    result: UnitResult


class Cause(Record, frozen=True, kw_only=True):
    """The narrowest thing that fails in a module."""

    blame: Blame
    module: str
    unit: str
    row: int
    places: tuple[int, ...]  # steps of the program of the row; none when the module itself fails
    result: UnitResult
    note: str = ""


class Search:
    """One search; each stage needs the ones before it."""

    def __init__(self, trace: Trace, found: Plan, requests: Requests, runner: Runner, settings: Settings) -> None:
        self.walk = Walk(found.nodes, roots_of(found, settings.only), max_depth=settings.max_depth)
        self.results: dict[str, UnitResult] = {}  # by unit
        self.ops: dict[int, TriedOp] = {}  # by op signature
        self.causes: list[Cause] = []
        self._trace = trace
        self._plan = found
        self._requests = requests
        self._runner = runner
        self._settings = settings

    def run(self) -> None:
        """All stages that were asked for."""
        self.try_modules()
        if self._settings.granularity is Granularity.OP:
            self.try_ops()
            self.try_groups()
        else:
            self.causes = [
                self._cause(Blame.MODULE, unit)
                for unit in self.failed_units()
                if not self.walk.has_failure_below(unit.module)
            ]

    def try_modules(self) -> None:
        """Walk the tree; what passes vouches for all below it."""
        for name in self.walk.begin():
            self._runner.ask(self._requests.for_unit(self._plan.units[name]))
        for asked, result in self._runner.answers():
            name = asked.removeprefix("unit:")
            self.results[name] = result
            for following in self.walk.tell(name, status_of(result)):
                self._runner.ask(self._requests.for_unit(self._plan.units[following]))

    def failed_units(self) -> list[Unit]:
        """The calls that failed, in the order of the modules."""
        failed = set(self.walk.failed())
        return [
            unit
            for unit in self._plan.units.values()
            if unit.module in failed and unit.id in self.results and status_of(self.results[unit.id]) in FAILED_STATUSES
        ]

    def try_ops(self) -> None:
        """Every op that a failed module calls itself, each configuration once."""
        asked: dict[str, tuple[int, Unit, int]] = {}
        for unit in self.failed_units():
            for place in self._own_places(unit):
                signature = self._signature(unit.row, place)
                name = f"op:{signature}"
                if name not in asked:
                    asked[name] = (signature, unit, place)
                    self._runner.ask(self._requests.for_steps(name, unit.row, [place]))
        for name, result in self._runner.answers():
            signature, unit, place = asked[name]
            self.ops[signature] = TriedOp(
                signature=signature, module=unit.module, row=unit.row, place=place, result=result
            )
        self.ops = {signature: self.ops[signature] for signature, _, _ in asked.values()}
        for tried in self.ops.values():
            if tried.result.failed:
                unit = next(unit for unit in self.failed_units() if unit.row == tried.row)
                self.causes.append(self._cause(Blame.OP, unit, (tried.place,), tried.result))

    def try_groups(self) -> None:
        """Where neither a module inside nor an own op explains a failure: the smallest group of ops that does."""
        for unit in self.failed_units():
            if not self.walk.has_failure_below(unit.module) and not self._explained(unit):
                self.causes.append(self._group(unit))

    def _explained(self, unit: Unit) -> bool:
        """Whether an own op of a module call fails alone, and in the way that the module does."""
        signatures = {self._signature(unit.row, place) for place in self._own_places(unit)}
        tried = [self.ops[number].result for number in signatures if number in self.ops]
        return any(result.failed and fails_alike(result, self.results[unit.id]) for result in tried)

    def _group(self, unit: Unit) -> Cause:
        program = self._requests.program(unit.row)
        places = [place for place, step in enumerate(program.steps) if step.makes and not step.is_random]
        whole = self._run_group(unit, places) if places and program.replayable else None
        if whole is None or not whole.failed or not fails_alike(whole, self.results[unit.id]):
            return self._cause(Blame.MODULE, unit, note=_no_ops_reason(program, whole))
        before = self._as_before(unit, program, whole)
        if before is not None:
            return before
        known: dict[tuple[int, ...], UnitResult] = {tuple(places): whole}

        def fails(group: Sequence[int]) -> bool:
            result = known[tuple(group)] = self._run_group(unit, group)
            return result.failed and fails_alike(result, whole)

        smallest = smallest_failing(places, fails, most_runs=self._settings.most_bisecting_runs)
        blame = Blame.OP if len(smallest) == 1 else Blame.OPS_TOGETHER
        return self._cause(blame, unit, smallest, known[smallest])

    def _as_before(self, unit: Unit, program: CallProgram, whole: UnitResult) -> Cause | None:
        """The same ops as in another module that fails alike: most models repeat themselves, with other shapes."""
        guesses = {
            places: earlier.blame
            for earlier in self.causes
            if earlier.places and fails_alike(earlier.result, whole)
            for places in _same_ops(self._requests.program(earlier.row), earlier.places, program)
        }
        for places, blame in list(guesses.items())[:_MOST_GUESSES]:
            result = self._run_group(unit, places)
            if result.failed and fails_alike(result, whole):
                return self._cause(blame, unit, places, result)
        return None

    def _run_group(self, unit: Unit, places: Sequence[int]) -> UnitResult:
        name = f"ops:{unit.id}:{named_places(places)}"
        return self._runner.answer(self._requests.for_steps(name, unit.row, places))

    def _own_places(self, unit: Unit) -> list[int]:
        """The steps of a module call that are its own; of the modules in it too where the walk may go no deeper."""
        program = self._requests.program(unit.row)
        depth, limit = self._plan.nodes[unit.module].depth, self._settings.max_depth
        everything = limit is not None and depth >= limit
        if not program.replayable:
            return []
        return [place for place, step in enumerate(program.steps) if step.stands_alone and (step.own or everything)]

    def _signature(self, row: int, place: int) -> int:
        return self._trace.ops.signature_of[self._requests.program(row).steps[place].op_call]

    def _cause(
        self, blame: Blame, unit: Unit, places: tuple[int, ...] = (), result: UnitResult | None = None, note: str = ""
    ) -> Cause:
        return Cause(
            blame=blame,
            module=unit.module,
            unit=unit.id,
            row=unit.row,
            places=places,
            result=self.results[unit.id] if result is None else result,
            note=note,
        )


def _same_ops(program: CallProgram, places: Sequence[int], other: CallProgram) -> list[tuple[int, ...]]:
    """Where another program has the ops of these steps, as far from each other."""
    ops = [program.steps[place].op for place in places]
    offsets = [place - places[0] for place in places]
    return [
        tuple(start + offset for offset in offsets)
        for start in range(len(other.steps) - offsets[-1])
        if all(other.steps[start + offset].op == op for offset, op in zip(offsets, ops, strict=True))
    ]


def _no_ops_reason(program: CallProgram, whole: UnitResult | None) -> str:
    if not program.replayable:
        return "its ops cannot run by themselves: one of them takes an argument that is neither a tensor nor a number"
    if whole is None:
        return "it calls no op"
    if whole.failed:
        return f"its recorded ops fail in another way: {whole.reason}"
    if whole.reason:
        return f"its recorded ops could not be judged: {whole.reason}"
    return "its recorded ops pass: what fails is the way the backend reads the module's code"


def named_places(places: Sequence[int]) -> str:
    """3, 4, 5, 9 as 3..5-9: short enough for a name."""
    found: list[list[int]] = []
    for place in places:
        if found and found[-1][-1] == place - 1:
            found[-1] = [found[-1][0], place]
        else:
            found.append([place])
    return "-".join("..".join(map(str, one)) for one in found)
