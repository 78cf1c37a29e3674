"""Observed calls of a whole model + formulas -> each module by its formula, beside what was traced."""

from collections.abc import Mapping, Sequence
from time import perf_counter

from torchstone.errors import FormulaError
from torchstone.formula.database import Formulas
from torchstone.formula.derive.observation import NO_COST, Cost, Observation
from torchstone.formula.validate import computed_cost, entry_for, parameters_for
from torchstone.record.formula import FormulaEntry, Quantity, Status
from torchstone.record.formula_coverage import Coverage, FormulaCost, FormulaModule

_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")
_UNKNOWN = "no formula is known for the class"


def cost_by_formula(
    model: str, observations: Sequence[Observation], formulas: Formulas, derived_now: Mapping[str, str], variant: str
) -> FormulaCost:
    """Evaluate the formula of every module that ran.

    `derived_now` are the classes that were to be derived for this run, with the reason where one was refused.
    """
    by_path: dict[str, list[Observation]] = {}
    for seen in observations:
        by_path.setdefault(seen.path, []).append(seen)
    evaluation = _Evaluation(formulas, variant)
    modules = tuple(_module(calls, evaluation, derived_now) for calls in by_path.values())
    return FormulaCost(model=model, modules=modules, evaluation_s=evaluation.elapsed_s)


def entry_of_call(formulas: Formulas, seen: Observation, variant: str) -> FormulaEntry | None:
    """The entry of this code path, or the usual one for a call that is not given what makes the path another."""
    own = entry_for(formulas, seen.class_name, variant)
    if own is not None or not variant or _is_given_a_cache(seen):
        return own
    return entry_for(formulas, seen.class_name, "")


class _Evaluation:
    """Evaluates calls; equal ones once."""

    def __init__(self, formulas: Formulas, variant: str) -> None:
        self.elapsed_s = 0.0
        self.formulas = formulas
        self.variant = variant
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], Cost | str] = {}

    @property
    def unknown(self) -> str:
        """Why a class has no entry."""
        return f"{_UNKNOWN} in the phase {self.variant}" if self.variant else _UNKNOWN

    def cost(self, entry: FormulaEntry, seen: Observation) -> Cost | str:
        """What a call costs by its formula, or why that cannot be said."""
        values = parameters_for(entry, seen)
        key = (seen.class_name, tuple(values.items()))
        if key not in self._known:
            start = perf_counter()
            self._known[key] = self._computed(entry, values)
            self.elapsed_s += perf_counter() - start
        return self._known[key]

    def _computed(self, entry: FormulaEntry, values: Mapping[str, int]) -> Cost | str:
        try:
            found = computed_cost(self.formulas, entry, values)
        except FormulaError as error:
            return str(error)
        flops, reads, writes = (found[one] for one in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES))
        return Cost(flops=int(flops), reads=int(reads), writes=int(writes))


def _coverage(entry: FormulaEntry, derived_now: Mapping[str, str]) -> Coverage:
    if entry.validation.status is Status.PENDING:
        return Coverage.PENDING
    return Coverage.DERIVED if entry.module_path in derived_now else Coverage.FORMULA


def _is_given_a_cache(seen: Observation) -> bool:
    return any(given and name.startswith("has_") and name[4:] in _CACHES for name, given in seen.reading.facts.items())


def _module(calls: Sequence[Observation], evaluation: _Evaluation, derived_now: Mapping[str, str]) -> FormulaModule:
    seen = calls[0]
    traced = sum((one.whole for one in calls), start=NO_COST)
    entry = entry_of_call(evaluation.formulas, seen, evaluation.variant)
    results = [] if entry is None else [evaluation.cost(entry, one) for one in calls]
    reasons = [result for result in results if isinstance(result, str)]
    by_formula = None
    if entry is not None and not reasons:
        by_formula = sum((result for result in results if isinstance(result, Cost)), start=NO_COST)
    return FormulaModule(
        path=seen.path,
        class_name=seen.class_name,
        coverage=Coverage.TRACED if entry is None or by_formula is None else _coverage(entry, derived_now),
        calls=len(calls),
        traced_flops=traced.flops,
        traced_bytes_read=traced.reads,
        traced_bytes_written=traced.writes,
        flops=None if by_formula is None else by_formula.flops,
        bytes_read=None if by_formula is None else by_formula.reads,
        bytes_written=None if by_formula is None else by_formula.writes,
        reason=reasons[0]
        if reasons
        else ""
        if entry is not None
        else derived_now.get(seen.class_name) or evaluation.unknown,
    )
