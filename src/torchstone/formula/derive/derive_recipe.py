"""A user's recipe -> entries that hidden points could not refute: derive, judge, refine, refuse what stays wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import msgspec

from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.database.files import Formulas, key_of, short_name
from torchstone.formula.derive.boundaries import Boundaries, remainder_is_zero
from torchstone.formula.derive.code_paths import Refused
from torchstone.formula.derive.database_entries import Origin
from torchstone.formula.derive.gate import Verdict, formulas_of, judge, seed_of, separating_conditions
from torchstone.formula.derive.library import ASSUMPTIONS, Library
from torchstone.formula.derive.observe import Observation, Sample, observe
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.parameter_binding import BATCH, CONFIGURED
from torchstone.formula.derive.recipes import Subject, constants_of, measured_hidden, prepare, training_points
from torchstone.formula.derive.samples import Bench, Make
from torchstone.record.formula import BuiltBy, FormulaEntry, Quantity

_ROUNDS = 5
_MOST_QUOTIENTS = 6  # constants for which rounded quotients are tried
_MOST_REMAINDERS = 3  # constants, and sizes, for which multiples are derived separately
_SMALL = 8  # sizes up to which a domain may begin above the wrong ones
_REFUTING = 6  # wrong points that the next attempt must give
_FEWEST_AGREEING = 8  # hidden points inside the domain of an entry that others wrote
HIDDEN, SYMBOLIC = "hidden", "symbolic"
UNCONFIRMED = "no hidden point is inside its domain, so nothing confirms its formula"


def derive_recipe(make: Make, sizes: Sequence[str], bench: Bench, built_by: BuiltBy | None = None) -> Library:
    """Derive the classes inside a module that a function of sizes builds.

    A class that hidden points contradict gets no entry; its reason is in the library's refusals.
    """
    try:
        subject = prepare(make, sizes, bench)
    except RefusedError as reason:
        refused = Refused(class_name="recipe", reason=str(reason))
        return Library(refused={"recipe": refused})
    return _Search(subject, built_by).run()


@dataclass(slots=True)
class _Attempt:
    """One derivation, and what hidden points say about it."""

    library: Library
    seen: list[Observation]
    hidden: list[Observation]
    verdict: Verdict


@dataclass(slots=True)
class _Search:
    """Derivations with more and more boundaries, until hidden points agree or nothing more can be tried."""

    subject: Subject
    built_by: BuiltBy | None
    root: str = ""  # the class that the recipe builds
    constants: frozenset[int] = frozenset()
    never: dict[str, str] = field(default_factory=dict)
    parts: Library = field(default_factory=Library)
    refuting: list[Mapping[str, int]] = field(default_factory=list)  # sizes at which an earlier attempt was wrong

    def run(self) -> Library:
        module, _ = self.subject.make(_first_point(self.subject))
        self.root = root = f"{type(module).__module__}.{type(module).__qualname__}"
        self.constants = constants_of(module) | self.subject.boundaries.numbers
        attempt = self._attempt(0)
        quotients, read = self._quotients(), self.subject.boundaries
        for number in range(1, _ROUNDS + _MOST_QUOTIENTS + _MOST_REMAINDERS):
            if root not in attempt.library.entries and root not in self.never:
                more = next(quotients, None)
                if more is None:
                    break
                self.subject.boundaries = more.joined(read)  # one constant at a time: each adds several quotients
            elif not attempt.verdict.wrong_costs or self._excludes_small(attempt) or not self._refine(attempt, root):
                break
            attempt = self._attempt(number)
        return self._finished(attempt)

    def _attempt(self, number: int) -> _Attempt:
        samples = list(self._samples(number))
        self.parts.add_parts(samples, self.subject.bench, lambda _: None)
        library = Library(derived=dict(self.parts.derived), entries=dict(self.parts.entries))
        origin = Origin(assumptions=ASSUMPTIONS, built_by=self.built_by)
        seen = library.add(samples, self.subject.bench, self.subject.coordinates, origin, self.never)
        seed = seed_of(library.entries.values(), number)
        hidden: list[Observation] = []
        if self.root in library.entries or library.entries.keys() - self.parts.entries.keys():
            for sample in measured_hidden(self.subject, self.constants, seed):
                hidden.extend(observe(sample))
        verdict = judge(formulas_of(library.entries.values()), hidden)
        return _Attempt(library, [*seen, *hidden], hidden, verdict)

    def _samples(self, number: int) -> Iterable[Sample]:
        points = training_points(self.subject, self.constants, number)
        for sizes, held_out, guard in (*points, *((one, False, "") for one in self.refuting)):
            sample = self.subject.measure(sizes, held_out=held_out, guard=guard)
            if sample is not None:  # a size that the module does not take has no cost to compare with
                yield sample

    def _excludes_small(self, attempt: _Attempt) -> bool:
        """End the domain of wrong formulas above a few small sizes, where a part of the module has no elements left."""
        limits: dict[str, str] = {}
        for name in attempt.verdict.wrong_costs:
            wrong = [one.sizes for one in attempt.verdict.contradictions if one.class_name == name]
            right = attempt.verdict.agreeing.get(name, [])
            limit = next(self._lower_limits(wrong, right), None) if len(right) >= _FEWEST_AGREEING else None
            if limit is not None:
                limits[name] = limit
        if not limits.keys() >= attempt.verdict.wrong_costs.keys():
            return False
        for name, limit in limits.items():
            entry = attempt.library.entries[name]
            attempt.library.entries[name] = msgspec.structs.replace(entry, domain=(*entry.domain, limit))
        attempt.verdict = judge(formulas_of(attempt.library.entries.values()), attempt.hidden)
        return not attempt.verdict.wrong_costs

    def _lower_limits(self, wrong: Sequence[Mapping[str, int]], right: Sequence[Mapping[str, int]]) -> Iterator[str]:
        """Conditions that exclude all wrong points and no right one, and only small sizes."""
        if any(set(self.subject.sizes) - one.keys() for one in (*wrong, *right)):
            return
        for name in self.subject.sizes:
            largest, least = max(one[name] for one in wrong), min(one[name] for one in right)
            if largest < least and largest <= _SMALL:
                yield f"{name} >= {least}"
        for one in self.subject.multiples:
            largest = max(int(one.form.value(sizes)) for sizes in wrong)
            least = min(int(one.form.value(sizes)) for sizes in right)
            if largest < least and largest <= _SMALL:
                yield f"{one.size} >= {least * one.number}" + (f" * {one.of}" if one.of else "")

    def _refine(self, attempt: _Attempt, root: str) -> bool:
        """Find what separates the wrong points of a class from the right ones; False where there is nothing to try."""
        wrong = attempt.verdict.wrong_costs
        for name, contradiction in wrong.items():
            if name != root:
                self.never[name] = f"hidden points contradict its formula: {contradiction.text}"
        if root not in wrong:
            return True
        bad = [one.sizes for one in attempt.verdict.contradictions if one.class_name == root and one.quantity]
        good = attempt.verdict.agreeing.get(root, [])
        known = set(self.subject.boundaries.conditions)
        new = [one for one in separating_conditions(bad, good, self.constants) if one not in known]
        first_time = not self.refuting
        self.refuting += bad[:_REFUTING]
        if not new:
            return (
                len(wrong) > 1 or first_time
            )  # without wrong inner formulas, or through these points, it may be right
        self.subject.boundaries = self.subject.boundaries.joined(Boundaries(conditions=tuple(new[:1])))
        self.constants |= self.subject.boundaries.numbers
        return True

    def _quotients(self) -> Iterator[Boundaries]:
        """Rounded quotients of sizes by constants of the code, where a run with symbolic sizes did not show them."""
        names = [name for name in self.subject.sizes if name != BATCH]
        for number in sorted(self.constants | {2})[:_MOST_QUOTIENTS]:
            step = Polynomial.constant(number)
            shares = [  # a part of each head, where one size is a multiple of another
                Polynomial.unknown(one.size).divided(Polynomial.unknown(one.of) * step)
                for one in self.subject.multiples
                if one.of
            ]
            forms = [
                (Polynomial.unknown(name) + Polynomial.constant(shift)).divided(step)
                for name, shift in product(names, (0, number - 1))
            ]
            yield Boundaries(quotients=(*shares, *forms))
        for number in sorted(self.constants)[:_MOST_REMAINDERS]:
            yield Boundaries(conditions=tuple(remainder_is_zero(name, number) for name in names[:_MOST_REMAINDERS]))

    # --- The entries that are left ---

    def _finished(self, attempt: _Attempt) -> Library:
        library, verdict = attempt.library, attempt.verdict
        for name, quantities in verdict.wrong_extras.items():
            remove_extras(library, name, quantities)
        library.remove(
            {name: f"hidden points contradict its formula: {one.text}" for name, one in verdict.wrong_costs.items()}
        )
        own = library.entries.keys() - self.parts.entries.keys()
        library.remove({name: UNCONFIRMED for name in own if not verdict.checked.get(name)})
        ranges = {} if self.subject.boundaries.complete else tested_ranges(attempt.seen)
        for name, entry in library.entries.items():
            if name not in self.parts.entries:
                more = () if ranges else (SYMBOLIC,)
                library.entries[name] = documented(entry, verdict.checked.get(name, 0), ranges.get(name, {}), more)
        library.refused = {name: one for name, one in library.refused.items() if name not in library.entries}
        return library


def _first_point(subject: Subject) -> dict[str, int]:
    sizes, _, _ = training_points(subject, (), 0)[0]
    return sizes


def tested_ranges(seen: Iterable[Observation]) -> dict[str, dict[str, int]]:
    """By class: the largest value of each size that was measured."""
    largest: dict[str, dict[str, int]] = {}
    for one in seen:
        if one.parameters.rule == CONFIGURED:
            sizes = largest.setdefault(one.class_name, {})
            for name, size in one.parameters.sizes.items():
                sizes[name] = max(size, sizes.get(name, 0))
    return largest


def documented(
    entry: FormulaEntry, checked: int, ranges: Mapping[str, int], more: tuple[str, ...] = ()
) -> FormulaEntry:
    """The entry with its hidden points as evidence, and with tested ranges in its domain where comparisons are unknown.

    Only parameters get a range: on others, the costs do not depend.
    """
    evidence = entry.evidence
    assert evidence is not None  # noqa: S101 - every derived entry has it
    routes = tuple(dict.fromkeys((*evidence.routes, HIDDEN, *more)))
    limits = tuple(f"{name} <= {ranges[name]}" for name in entry.all_parameters if name in ranges)
    return msgspec.structs.replace(
        entry,
        domain=(*entry.domain, *limits),
        evidence=msgspec.structs.replace(evidence, points_checked=evidence.points_checked + checked, routes=routes),
    )


def remove_extras(library: Library, name: str, quantities: Iterable[Quantity]) -> None:
    """Take quantities out of an entry; weights also out of all entries that add them up."""
    waiting = [(name, quantity) for quantity in quantities]
    while waiting:
        one, quantity = waiting.pop()
        entry = library.entries.get(one)
        if entry is None or entry.template(quantity) is None or entry.memory_analysis is None:
            continue
        field_name = "weights_template" if quantity is Quantity.WEIGHTS else "intermediates_template"
        memory = msgspec.structs.replace(entry.memory_analysis, **{field_name: None})
        library.entries[one] = msgspec.structs.replace(entry, memory_analysis=memory)
        if quantity is Quantity.WEIGHTS:
            waiting += [
                (caller, quantity)
                for caller, other in library.entries.items()
                if one in other.flop_analysis.module_depends
            ]


# --- Entries that others wrote: an agent, a person, an earlier version of the code ---


@dataclass(slots=True, kw_only=True)
class Remeasured:
    """The verdict of fresh captures at hidden points on one entry."""

    verdict: Verdict
    measured: int  # captures

    def problem(self, entry: FormulaEntry) -> str:
        """What is wrong with the entry; "" where enough points inside its domain agree with it."""
        wrong = next((one for one in self.verdict.contradictions if one.class_name == entry.module_path), None)
        if wrong is not None:
            return wrong.text
        agreeing = self.verdict.checked.get(entry.module_path, 0)
        if agreeing < min(_FEWEST_AGREEING, self.measured // 2 + 1):
            return f"only {agreeing} of {self.measured} measured settings are inside its domain"
        return ""


def remeasure(formulas: Formulas, entry: FormulaEntry, make: Make, sizes: Sequence[str], bench: Bench) -> Remeasured:
    """Measure the module of a recipe at hidden points and judge the stored formulas of one entry.

    Raises RefusedError where the recipe cannot be run.
    """
    subject = prepare(make, sizes, bench)
    module, _ = subject.make(_first_point(subject))
    constants = constants_of(module) | subject.boundaries.numbers
    known = Formulas(entries={**formulas.entries, key_of(entry.module_path, entry.variant): entry})
    samples = list(measured_hidden(subject, constants, seed_of([entry])))
    seen = [one for sample in samples for one in observe(sample)]
    named = [replace(one, class_name=entry.module_path) if _is_class(one, entry) else one for one in seen]
    return Remeasured(verdict=judge(known, named, entry.variant), measured=len(samples))


def _is_class(seen: Observation, entry: FormulaEntry) -> bool:
    """Whether a root call is of the entry's class; a file that is loaded by its path has a module name of its own."""
    return not seen.path and short_name(seen.class_name) == short_name(entry.module_path)
