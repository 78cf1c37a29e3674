"""The gate of every entry: its stored formulas, evaluated as a user would, against fresh captures at hidden points.

The points are drawn after the entry is fixed: their seed is a digest of the entry itself, so no derivation, agent or
author can have seen them, and yet the same entry is always judged in the same way.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from operator import gt

from torchstone.errors import FormulaError, OutsideDomainError
from torchstone.formula.algebra.polynomial import CHOOSE, MODULO, ONE, ZERO, Applied, Polynomial
from torchstone.formula.database.compute import compute, shown
from torchstone.formula.database.files import Formulas, key_of
from torchstone.formula.database.templates import name_of
from torchstone.formula.derive.observe import Observation
from torchstone.formula.derive.validate import entry_for, measured_quantities, parameters_for
from torchstone.record.formula import FormulaEntry, Quantity

_OPTIONAL = (Quantity.INTERMEDIATES, Quantity.WEIGHTS)
_DIVISORS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 100, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A measured call that the formula of its class does not give."""

    class_name: str
    quantity: Quantity | None  # None: the formula cannot be evaluated
    sizes: Mapping[str, int]  # of the call
    text: str  # one clause: what the formula gives, and what was measured
    strided: bool = False  # an input of the call is not contiguous in memory


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What hidden points say about the entries of a derivation."""

    checked: dict[str, int] = field(default_factory=dict)  # class -> calls that agreed
    contradictions: list[Contradiction] = field(default_factory=list)
    agreeing: dict[str, list[Mapping[str, int]]] = field(default_factory=dict)  # class -> sizes of calls that agreed

    @property
    def wrong_costs(self) -> dict[str, Contradiction]:
        """By class: the first contradiction of its FLOPs or bytes."""
        found: dict[str, Contradiction] = {}
        for one in self.contradictions:
            if one.quantity not in _OPTIONAL:
                found.setdefault(one.class_name, one)
        return found

    @property
    def wrong_but_for_copies(self) -> dict[str, Contradiction]:
        """As `wrong_costs`, without calls that differ by the layout of an input.

        These are calls of torch.nn, whose formulas are for contiguous inputs, and of classes that agree elsewhere.
        """
        return {
            one.class_name: one
            for one in reversed(self.contradictions)
            if one.quantity not in _OPTIONAL and not (one.strided and self._holds_elsewhere(one.class_name))
        }

    def _holds_elsewhere(self, class_name: str) -> bool:
        return class_name in self.checked or class_name.startswith("torch.nn.")

    @property
    def wrong_extras(self) -> dict[str, set[Quantity]]:
        """By class: weights and live bytes that are wrong; an entry can lose these and keep the rest."""
        found: dict[str, set[Quantity]] = {}
        for one in self.contradictions:
            if one.quantity in _OPTIONAL:
                found.setdefault(one.class_name, set()).add(one.quantity)
        return found


def seed_of(entries: Iterable[FormulaEntry], salt: int = 0) -> int:
    """A number that depends on every formula of the entries."""
    texts = sorted(
        f"{entry.module_path}[{entry.variant}]" + "".join(entry.template(one) or "-" for one in Quantity)
        for entry in entries
    )
    return int.from_bytes(sha256(f"{salt}{texts}".encode()).digest()[:8], "big")


def formulas_of(entries: Iterable[FormulaEntry]) -> Formulas:
    """Entries as a database."""
    return Formulas(entries={key_of(entry.module_path, entry.variant): entry for entry in entries})


Choose = Callable[[Formulas, Observation, str], FormulaEntry | None]  # the entry of a call on a code path


def _of_class(formulas: Formulas, seen: Observation, variant: str) -> FormulaEntry | None:
    return entry_for(formulas, seen.class_name, variant)


def judge(
    formulas: Formulas, observations: Iterable[Observation], variant: str = "", choose: Choose = _of_class
) -> Verdict:
    """Evaluate the stored entry of every call, and compare all its quantities; a call outside the domain is skipped."""
    verdict = Verdict()
    seen_before: set[tuple[object, ...]] = set()
    for seen in observations:
        entry = choose(formulas, seen, variant)
        if entry is None or seen.unpriced:
            continue
        try:
            values = parameters_for(entry, seen)
        except FormulaError:  # the call does not tell a parameter: there is nothing to compare
            continue
        # Equal sizes may cost differently: the layout of an input is not a parameter.
        key = (seen.class_name, tuple(values.items()), seen.whole, seen.weight_bytes)
        if key in seen_before:
            continue
        seen_before.add(key)
        try:
            wrong = list(_contradictions(formulas, entry, values, seen))
        except OutsideDomainError:  # neither right nor wrong
            continue
        verdict.contradictions.extend(wrong)
        if not wrong:
            verdict.checked[seen.class_name] = verdict.checked.get(seen.class_name, 0) + 1
            verdict.agreeing.setdefault(seen.class_name, []).append(seen.parameters.sizes)
    return verdict


def _contradictions(
    formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], seen: Observation
) -> Iterable[Contradiction]:
    at = ", ".join(f"{name}={value}" for name, value in values.items())
    for quantity, measured in measured_quantities(entry, seen).items():
        try:
            given = compute(formulas, name_of(entry), quantity, dict(values))
        except OutsideDomainError:
            raise
        except FormulaError as error:
            yield Contradiction(class_name=seen.class_name, quantity=None, sizes=seen.parameters.sizes, text=str(error))
            return
        if given != measured:
            text = f"at {at} it gives {shown(given)} {quantity}, but {measured:,} were measured"
            yield Contradiction(
                class_name=seen.class_name,
                quantity=quantity,
                sizes=seen.parameters.sizes,
                text=text,
                strided=seen.strided,
            )


# --- A condition that separates wrong points from right ones: the code path that the fit has not seen ---


def separating_conditions(
    wrong: Sequence[Mapping[str, int]], right: Sequence[Mapping[str, int]], constants: Iterable[int]
) -> list[Polynomial]:
    """Conditions that hold at all points where a formula is wrong and at none where it is right, or the reverse.

    Candidates are a remainder of 0, and a threshold at a constant or between the measured sizes.
    """
    found: list[Polynomial] = []
    names = [name for name in (wrong[0] if wrong else {}) if all(name in one for one in (*wrong, *right))]
    numbers = sorted({*constants, *_DIVISORS})
    for name in names:
        bad, good = {one[name] for one in wrong}, {one[name] for one in right}
        if not good or bad & good:
            continue
        size = Polynomial.unknown(name)
        for number in numbers:
            if _separates(partial(_divides, number), bad, good):
                rest = Polynomial.unknown(Applied(MODULO, (size, Polynomial.constant(number))))
                found.append(_is_less(rest, ONE))
                break
        limits = sorted({*(one + shift for one in numbers for shift in (0, 1)), *bad, *good})
        for limit in limits:
            if _separates(partial(gt, limit), bad, good):
                found.append(_is_less(size, Polynomial.constant(limit)))
                break
    return found


def _divides(number: int, value: int) -> bool:
    return value % number == 0


def _separates(holds: Callable[[int], bool], bad: set[int], good: set[int]) -> bool:
    on_bad, on_good = {holds(one) for one in bad}, {holds(one) for one in good}
    return len(on_bad) == len(on_good) == 1 and on_bad != on_good


def _is_less(left: Polynomial, right: Polynomial) -> Polynomial:
    return Polynomial.unknown(Applied(CHOOSE, (left, right, ONE, ZERO)))
