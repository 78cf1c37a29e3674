"""Localize a failure: modules from the root down, then single ops, then the smallest failing group of ops."""

from collections.abc import Callable, Sequence

from torchstone.check.plan import Plan, Unit, Walk, roots_of
from torchstone.check.programs import CallProgram
from torchstone.check.requests import Questions
from torchstone.check.runner import Asking, same_way, status_of
from torchstone.check.settings import Granularity, Settings
from torchstone.record.base import Record
from torchstone.record.check import FAILED_STATUSES, Blame, UnitResult
from torchstone.record.trace import Trace

# The smallest group of steps that still fails, found with few runs.


Fails = Callable[[Sequence[int]], bool]


def smallest_failing(steps: Sequence[int], fails: Fails, *, most_runs: int) -> tuple[int, ...]:
    """Some of the steps that fail together; leaving any one of them out makes them pass, if the runs sufficed.

    `fails` is only asked about groups of the given steps, each group at most once; the whole is known to fail.
    """
    asked = _Asked(fails, most_runs)
    group = list(steps)
    group = group[: _first_end(group, asked)]
    group = group[_last_start(group, asked) :]
    return tuple(_without_the_needless(group, asked))


class _Asked:
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


def _without_the_needless(group: list[int], fails: Fails) -> list[int]:
    """Leave out stretches, then single steps, as long as the rest still fails."""
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


# The search for what is to blame: modules from the root down, then single ops, then ops that fail only together.


_MOST_GUESSES = 4  # before a group of ops is searched for from scratch


class TriedOp(Record, frozen=True, kw_only=True):
    """An op configuration that ran alone: the call that stood for it, and how it ended."""

    signature: int
    module: str
    row: int
    place: int  # its step in the program of the row
    result: UnitResult


class Culprit(Record, frozen=True, kw_only=True):
    """The narrowest thing that fails in a module."""

    blame: Blame
    module: str
    unit: str
    row: int
    places: tuple[int, ...]  # steps of the program of the row; none when the module itself is to blame
    result: UnitResult
    note: str = ""


class Search:
    """One search; each stage needs the ones before it."""

    def __init__(self, trace: Trace, found: Plan, questions: Questions, asking: Asking, settings: Settings) -> None:
        self.walk = Walk(found.nodes, roots_of(found, settings.only), max_depth=settings.max_depth)
        self.results: dict[str, UnitResult] = {}  # by unit
        self.ops: dict[int, TriedOp] = {}  # by op signature
        self.culprits: list[Culprit] = []
        self._trace = trace
        self._plan = found
        self._questions = questions
        self._asking = asking
        self._settings = settings

    def run(self) -> None:
        """All stages that were asked for."""
        self.try_modules()
        if self._settings.granularity is Granularity.OP:
            self.try_ops()
            self.try_groups()
        else:
            self.culprits = [
                self._culprit(Blame.MODULE, unit)
                for unit in self.failed_units()
                if not self.walk.has_failure_below(unit.module)
            ]

    def try_modules(self) -> None:
        """Walk the tree; what passes vouches for all below it."""
        for name in self.walk.begin():
            self._asking.ask(self._questions.about_unit(self._plan.units[name]))
        for asked, result in self._asking.answers():
            name = asked.removeprefix("unit:")
            self.results[name] = result
            for following in self.walk.tell(name, status_of(result)):
                self._asking.ask(self._questions.about_unit(self._plan.units[following]))

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
                    self._asking.ask(self._questions.about_steps(name, unit.row, [place]))
        for name, result in self._asking.answers():
            signature, unit, place = asked[name]
            self.ops[signature] = TriedOp(
                signature=signature, module=unit.module, row=unit.row, place=place, result=result
            )
        self.ops = {signature: self.ops[signature] for signature, _, _ in asked.values()}
        for tried in self.ops.values():
            if tried.result.failed:
                unit = next(unit for unit in self.failed_units() if unit.row == tried.row)
                self.culprits.append(self._culprit(Blame.OP, unit, (tried.place,), tried.result))

    def try_groups(self) -> None:
        """Where neither a module inside nor an own op explains a failure: the smallest group of ops that does."""
        for unit in self.failed_units():
            if not self.walk.has_failure_below(unit.module) and not self._explained(unit):
                self.culprits.append(self._group(unit))

    def _explained(self, unit: Unit) -> bool:
        """Whether an own op of a module call fails alone, and in the way that the module does."""
        signatures = {self._signature(unit.row, place) for place in self._own_places(unit)}
        tried = [self.ops[number].result for number in signatures if number in self.ops]
        return any(result.failed and same_way(result, self.results[unit.id]) for result in tried)

    def _group(self, unit: Unit) -> Culprit:
        program = self._questions.program(unit.row)
        places = [place for place, step in enumerate(program.steps) if step.makes and not step.is_random]
        whole = self._ask_group(unit, places) if places and program.replayable else None
        if whole is None or not whole.failed or not same_way(whole, self.results[unit.id]):
            return self._culprit(Blame.MODULE, unit, note=_why_no_ops(program, whole))
        before = self._as_before(unit, program, whole)
        if before is not None:
            return before
        known: dict[tuple[int, ...], UnitResult] = {tuple(places): whole}

        def fails(group: Sequence[int]) -> bool:
            result = known[tuple(group)] = self._ask_group(unit, group)
            return result.failed and same_way(result, whole)

        smallest = smallest_failing(places, fails, most_runs=self._settings.most_bisecting_runs)
        blame = Blame.OP if len(smallest) == 1 else Blame.OPS_TOGETHER
        return self._culprit(blame, unit, smallest, known[smallest])

    def _as_before(self, unit: Unit, program: CallProgram, whole: UnitResult) -> Culprit | None:
        """The same ops as in another module that fails alike: most models repeat themselves, with other shapes."""
        guesses = {
            places: earlier.blame
            for earlier in self.culprits
            if earlier.places and same_way(earlier.result, whole)
            for places in _same_ops(self._questions.program(earlier.row), earlier.places, program)
        }
        for places, blame in list(guesses.items())[:_MOST_GUESSES]:
            result = self._ask_group(unit, places)
            if result.failed and same_way(result, whole):
                return self._culprit(blame, unit, places, result)
        return None

    def _ask_group(self, unit: Unit, places: Sequence[int]) -> UnitResult:
        name = f"ops:{unit.id}:{named_places(places)}"
        return self._asking.answer(self._questions.about_steps(name, unit.row, places))

    def _own_places(self, unit: Unit) -> list[int]:
        """The steps of a module call that are its own; of the modules in it too where the walk may go no deeper."""
        program = self._questions.program(unit.row)
        depth, limit = self._plan.nodes[unit.module].depth, self._settings.max_depth
        everything = limit is not None and depth >= limit
        if not program.replayable:
            return []
        return [place for place, step in enumerate(program.steps) if step.stands_alone and (step.own or everything)]

    def _signature(self, row: int, place: int) -> int:
        return self._trace.ops.signature_of[self._questions.program(row).steps[place].op_call]

    def _culprit(
        self, blame: Blame, unit: Unit, places: tuple[int, ...] = (), result: UnitResult | None = None, note: str = ""
    ) -> Culprit:
        return Culprit(
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


def _why_no_ops(program: CallProgram, whole: UnitResult | None) -> str:
    if not program.replayable:
        return "its ops cannot be run again by themselves: one of them takes something that is no tensor and no number"
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
