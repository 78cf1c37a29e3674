"""Formulas compared with measured module calls, of one class or of a whole model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from torchstone.errors import FormulaError, OutsideDomainError
from torchstone.formula.database.compute import Computation, compute, given_values
from torchstone.formula.database.files import Formulas, key_of, with_variant
from torchstone.formula.database.templates import parsed
from torchstone.formula.derive.observe import NO_COST, Cost, Observation
from torchstone.formula.derive.parameter_binding import CACHES, DTYPE_BYTES
from torchstone.formula.language.expression import Value
from torchstone.record.formula import Coverage, FormulaCost, FormulaEntry, FormulaModule, Quantity, Status

# --- The code path of a whole model, and the variant of formulas for it ---


_TORCH = "torch.nn."
BACKWARD = "backward"  # the variant with a backward pass; every class costs more there


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The code path of a whole model."""

    dtype: str = "float32"
    attention: str = ""  # eager, or "" for the model's own choice
    use_cache: bool = True
    decode: bool = False  # one new token, and a cache of those before it
    backward: bool = False  # a backward pass from all outputs after the forward pass; both are counted


def variant_of(options: Options) -> str:
    """The name of a code path; "" for the default one."""
    named = {
        options.attention: bool(options.attention),
        "no_cache": not options.use_cache,
        "decode": options.decode,
        BACKWARD: options.backward,
    }
    return "+".join(name for name, taken in named.items() if taken)


# --- Differences between formulas and measured calls ---


_COUNTED = (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A formula whose value is not the measured one."""

    module_path: str
    variant: str
    quantity: Quantity
    parameters: Mapping[str, int]
    computed: Value
    measured: int
    term: str  # the part of the formula that differs; "" where it is not known


@dataclass(slots=True, kw_only=True)
class Validated:
    """The result of a comparison."""

    checked: dict[str, int] = field(default_factory=dict)  # entry -> calls that agreed
    differences: list[Difference] = field(default_factory=list)
    outside: dict[str, str] = field(default_factory=dict)  # entry -> why a call could not be compared
    unknown: dict[str, int] = field(default_factory=dict)  # class without a formula -> calls


def validate(formulas: Formulas, observations: Iterable[Observation], variant: str = "") -> Validated:
    """Compare every call with its formula, exactly: FLOPs, bytes read and written, weights, peak activation bytes."""
    result = Validated()
    compared: set[tuple[object, ...]] = set()
    for seen in observations:
        entry = entry_for(formulas, seen.class_name, variant)
        if entry is None and variant:
            continue  # formulas shared by all code paths are compared on the default one
        if entry is None:
            result.unknown[seen.class_name] = result.unknown.get(seen.class_name, 0) + 1
            continue
        name = with_variant(entry.module_path, entry.variant)
        try:
            values = parameters_for(entry, seen)
            key = (name, tuple(values.items()), seen.whole, seen.weight_bytes)
            if key in compared:
                continue
            compared.add(key)
            found = _difference(formulas, entry, values, seen)
        except FormulaError as error:
            result.outside[name] = str(error)
            continue
        if found is None:
            result.checked[name] = result.checked.get(name, 0) + 1
        else:
            result.differences.append(found)
    return result


def entry_for(formulas: Formulas, class_path: str, variant: str) -> FormulaEntry | None:
    """The entry of a class for exactly this code path; "" is the default one."""
    return formulas.get(with_variant(class_path, variant))


def parameters_for(entry: FormulaEntry, seen: Observation) -> dict[str, int]:
    """The parameters of an entry as a call has them; one that it does not tell keeps its default.

    Raises FormulaError for one that has no default: 0 would be a guess.
    """
    other = next((name for name in entry.settings if _is_other(entry, seen, name)), None)
    if other is not None:
        given = f"calls without {other[4:]}" if other.startswith("has_") else f"{other}={entry.settings[other]}"
        msg = f"its formula is for {given} only"
        raise FormulaError(msg)
    if seen.parameters.mixed and entry.module_path.startswith(_TORCH) and DTYPE_BYTES in entry.all_parameters:
        msg = "its tensors have elements of different sizes, and its formula is for one element type"
        raise FormulaError(msg)
    unknown = [name for name in entry.all_parameters if not seen.parameters.knows(name)]
    missing = [name for name in unknown if name not in entry.defaults]
    if missing:
        msg = f"a call of it does not tell {', '.join(missing)}"
        raise FormulaError(msg)
    return {name: seen.parameters.value(name) for name in entry.all_parameters if name not in unknown}


def _is_other(entry: FormulaEntry, seen: Observation, name: str) -> bool:
    """Whether a module of torch.nn was built or called with another setting than the formula has."""
    if not entry.module_path.startswith(_TORCH):
        return False  # settings of a whole configuration, which is compared as one
    value = seen.attributes[name] if name in seen.attributes else seen.parameters.facts.get(name, False)
    return value != entry.settings[name]


def computed_cost(formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int]) -> dict[Quantity, Value]:
    """FLOPs and bytes by formula."""
    name = with_variant(entry.module_path, entry.variant)
    return {quantity: compute(formulas, name, quantity, dict(values)) for quantity in _COUNTED}


def _difference(
    formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], seen: Observation
) -> Difference | None:
    name = with_variant(entry.module_path, entry.variant)
    for quantity, measured in measured_quantities(entry, seen).items():
        computed = compute(formulas, name, quantity, dict(values))
        if computed != measured:
            return Difference(
                module_path=entry.module_path,
                variant=entry.variant,
                quantity=quantity,
                parameters=dict(values),
                computed=computed,
                measured=measured,
                term=_term(formulas, entry, values, seen) if quantity is Quantity.FLOPS else "",
            )
    return None


def measured_quantities(entry: FormulaEntry, seen: Observation) -> dict[Quantity, int]:
    """The measured quantities of a call, as far as the entry has formulas for them and they were observed."""
    found = {
        Quantity.FLOPS: seen.whole.flops,
        Quantity.READS: seen.whole.reads,
        Quantity.WRITES: seen.whole.writes,
        Quantity.INTERMEDIATES: seen.peak_bytes,
        Quantity.WEIGHTS: seen.weight_bytes,
    }
    return {one: value for one, value in found.items() if value is not None and entry.template(one) is not None}


def _term(formulas: Formulas, entry: FormulaEntry, values: Mapping[str, int], seen: Observation) -> str:
    """The part of the breakdown that differs from the ops that ran; "" where the difference is inside a call."""
    measured: dict[str, int] = {}
    for op in seen.ops:
        measured[op.signature.op] = measured.get(op.signature.op, 0) + op.cost.flops
    parts = {name: text for name, text in entry.flop_analysis.breakdown.items() if name.startswith("aten.")}
    computation = Computation(formulas, Quantity.FLOPS)
    given = given_values(entry, Quantity.FLOPS, dict(values))
    for name in dict.fromkeys((*parts, *measured)):
        tree = parsed(entry, f"breakdown of {name}", parts.get(name, "0"))
        value = computation.of_tree(entry, tree, given)
        if value != measured.get(name, 0):
            return f"{name}: {parts.get(name, '0')} is {value:,}, measured {measured.get(name, 0):,}"
    return ""


# --- A whole model: each module by its formula, beside its traced cost ---


_COPIED = "an input is not contiguous in memory and is copied; its formula is for contiguous inputs"
_UNKNOWN = "no formula is known for the class"


def cost_by_formula(
    model: str,
    observations: Sequence[Observation],
    formulas: Formulas,
    derived_now: Mapping[str, str],
    variant: str,
    blocked: Mapping[str, str] | None = None,
) -> FormulaCost:
    """Evaluate the formula of every module that ran.

    `derived_now` are the classes that were to be derived for this run, with the reason where one was refused;
    `blocked` the keys of entries that do not hold for this model, with the reason.
    """
    by_path: dict[str, list[Observation]] = {}
    for seen in observations:
        by_path.setdefault(seen.path, []).append(seen)
    evaluation = _Evaluation(formulas, variant, blocked or {})
    modules = tuple(_module(calls, evaluation, derived_now) for calls in by_path.values())
    return FormulaCost(model=model, modules=modules, evaluation_s=evaluation.elapsed_s)


def entry_of_call(formulas: Formulas, seen: Observation, variant: str) -> FormulaEntry | None:
    """The entry of this code path, or the default one for a call that does not receive the cache."""
    own = entry_for(formulas, seen.class_name, variant)
    if own is not None or not variant or BACKWARD in variant or _is_given_a_cache(seen):
        return own
    return entry_for(formulas, seen.class_name, "")


def is_outside(formulas: Formulas, entry: FormulaEntry, seen: Observation) -> bool:
    """Whether a call is outside the domain of an entry: derived for other sizes, it may be derived again."""
    try:
        computed_cost(formulas, entry, parameters_for(entry, seen))
    except OutsideDomainError:
        return True
    except FormulaError:
        return False
    return False


class _Evaluation:
    """Evaluates calls; equal ones once."""

    def __init__(self, formulas: Formulas, variant: str, blocked: Mapping[str, str]) -> None:
        self.elapsed_s = 0.0
        self.blocked = blocked
        self.formulas = formulas
        self.variant = variant
        self._known: dict[tuple[str, tuple[tuple[str, int], ...]], Cost | str] = {}

    @property
    def unknown(self) -> str:
        """Why a class has no entry."""
        return f"{_UNKNOWN} in the phase {self.variant}" if self.variant else _UNKNOWN

    def cost(self, entry: FormulaEntry, seen: Observation) -> Cost | str:
        """The cost of a call by its formula, or the reason why there is none."""
        reason = self.blocked.get(key_of(entry.module_path, entry.variant))
        if reason is not None:
            return reason
        try:
            values = parameters_for(entry, seen)
        except FormulaError as error:
            return str(error)
        key = (seen.class_name, tuple(values.items()))
        if key not in self._known:
            start = perf_counter()
            self._known[key] = self._computed(entry, values)
            self.elapsed_s += perf_counter() - start
        found = self._known[key]
        return _COPIED if seen.strided and isinstance(found, Cost) and found != seen.whole else found

    def _computed(self, entry: FormulaEntry, values: Mapping[str, int]) -> Cost | str:
        try:
            found = computed_cost(self.formulas, entry, values)
        except FormulaError as error:
            return str(error)
        flops, reads, writes = (found[one] for one in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES))
        if any(one.denominator != 1 for one in (flops, reads, writes)):
            return "its formula does not give a whole number here"
        return Cost(flops=int(flops), reads=int(reads), writes=int(writes))


def _coverage(entry: FormulaEntry, derived_now: Mapping[str, str]) -> Coverage:
    if entry.validation.status is Status.PENDING:
        return Coverage.PENDING
    return Coverage.DERIVED if entry.module_path in derived_now else Coverage.FORMULA


def _is_given_a_cache(seen: Observation) -> bool:
    return any(
        given and name.startswith("has_") and name[4:] in CACHES for name, given in seen.parameters.facts.items()
    )


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
        reason=_reason(seen, entry, reasons, derived_now) or ("" if entry else evaluation.unknown),
    )


def _reason(
    seen: Observation, entry: FormulaEntry | None, reasons: Sequence[str], derived_now: Mapping[str, str]
) -> str:
    """Why a module has no number by formula: why it was refused for this run comes before what was known earlier."""
    if entry is not None and not reasons:
        return ""
    return derived_now.get(seen.class_name) or (reasons[0] if reasons else "")
