"""Ask, judge, ask again: an entry is accepted only when it is right at every measured point."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from torchstone.errors import FormulaError
from torchstone.formula.agent.prompt import Answer, Attempt, ClassSource, follow_up, question_text, read_answer
from torchstone.formula.agent.providers import Provider
from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, key_of
from torchstone.formula.database.templates import check_alone, name_of, require_sound
from torchstone.record.formula import BuiltBy, Evidence, FormulaEntry, MeasuredCost, Quantity, Status, Validation
from torchstone.units import many

# --- Judging: an entry must be equal to every measured point ---


_OPTIONAL = (Quantity.INTERMEDIATES, Quantity.WEIGHTS)  # an answer may leave them out


def discrepancy(formulas: Formulas, entry: FormulaEntry, points: Sequence[MeasuredCost]) -> str | None:
    """The first thing that is wrong with an entry; None where it is sound and equal at every point."""
    known = Formulas(entries={**formulas.entries, key_of(entry.module_path, entry.variant): entry})
    try:
        check_alone(entry)
        for quantity in Quantity:
            if quantity in _OPTIONAL and entry.template(quantity) is None:
                continue  # not known, which is better than wrong
            require_sound(known, entry, quantity)
        for point in points:
            differs = _difference(known, entry, point)
            if differs is not None:
                return differs
    except FormulaError as error:
        return str(error)
    return None


def _difference(formulas: Formulas, entry: FormulaEntry, point: MeasuredCost) -> str | None:
    for quantity, expected in point.quantities.items():
        if quantity in _OPTIONAL and entry.template(quantity) is None:
            continue
        found = compute(formulas, name_of(entry), quantity, point.parameters)
        if found != expected:
            at = ", ".join(f"{name}={value}" for name, value in point.parameters.items())
            off = found - expected
            return f"at {at} the formula gives {found} {quantity}, but {expected} were measured (off by {off})"
    return None


# --- Asking, with the problem of the last answer in the next question ---


FEWEST_POINTS = 2
_HIDDEN_PROBLEM = (
    "it is wrong at settings that are not listed; write the formula for all sizes (even, odd, 1 and large ones), not a "
    "table of the measurements"
)
Refuted = Callable[[FormulaEntry], str]  # what hidden points say against an entry; "": nothing
OnRound = Callable[[int, str], None]  # number of the round, and what is wrong with its answer ("": accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The class that needs a formula, with its source and measurements."""

    class_path: str
    source: ClassSource
    points: Sequence[MeasuredCost]
    versions: dict[str, str]
    failure: str = ""  # why it could not be derived
    variant: str = ""  # the code path that was measured
    built_by: BuiltBy | None = None  # how the class is built again, to be measured at hidden points


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An accepted entry, or None and the attempts that were refused."""

    entry: FormulaEntry | None
    attempts: tuple[Attempt, ...]


def ask_for_entry(
    subject: Subject,
    provider: Provider,
    formulas: Formulas,
    *,
    rounds: int,
    on_round: OnRound,
    refuted: Refuted | None = None,
) -> Outcome:
    """Let a provider write the entry of a class, and accept it only if it is exact at every measured point.

    `refuted` measures an answer at points that are in no question. What it finds is not sent back: an answer could
    list it. `on_round` is called after each answer. Raises FormulaError with fewer than two measured points,
    ProviderError where the provider does not answer.
    """
    if len(subject.points) < FEWEST_POINTS:
        msg = (
            f"{subject.class_path} was measured at {many(len(subject.points), 'point')}; "
            f"{FEWEST_POINTS} or more are needed"
        )
        raise FormulaError(msg)
    question = question_text(subject.class_path, subject.source, subject.points, formulas, subject.failure)
    attempts: list[Attempt] = []
    for number in range(1, rounds + 1):
        text = provider.ask(follow_up(question, attempts))
        entry, problem = _judged(text, subject, provider, formulas)
        if entry is not None and refuted is not None and refuted(entry):
            entry, problem = None, _HIDDEN_PROBLEM
        on_round(number, problem)
        if entry is not None:
            return Outcome(entry=entry, attempts=tuple(attempts))
        attempts.append(Attempt(answer=text, problem=problem))
    return Outcome(entry=None, attempts=tuple(attempts))


def _judged(text: str, subject: Subject, provider: Provider, formulas: Formulas) -> tuple[FormulaEntry | None, str]:
    try:
        entry = _entry(read_answer(text), subject, provider)
    except FormulaError as error:
        return None, str(error)
    problem = _wrong_names(entry, subject) or discrepancy(formulas, entry, subject.points)
    return (entry, "") if problem is None else (None, problem)


def _wrong_names(entry: FormulaEntry, subject: Subject) -> str | None:
    measured = {name for point in subject.points for name in point.parameters}
    unknown = [name for name in entry.all_parameters if name not in measured and name not in entry.defaults]
    return f"the parameters {', '.join(unknown)} were not measured and have no default" if unknown else None


def _entry(answer: Answer, subject: Subject, provider: Provider) -> FormulaEntry:
    return FormulaEntry(
        module_path=subject.class_path,
        variant=subject.variant,
        code_location=subject.source.location,
        flop_analysis=answer.flop_analysis,
        memory_analysis=answer.memory_analysis,
        defaults=answer.defaults,
        domain=answer.domain,
        assumptions=answer.assumptions,
        built_by=subject.built_by,
        validation=Validation(
            status=Status.PENDING,
            validator=f"agent ({provider.name})",
            date=datetime.now(UTC).date().isoformat(),
            notes="written by an agent, equal to every measured point; waits for `torchstone formula approve`",
        ),
        versions=subject.versions,
        evidence=Evidence(points_checked=len(subject.points), max_error="0", routes=("measured",)),
    )
