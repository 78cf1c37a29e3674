"""Derived formulas -> entries of the database, in the language of templates."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torchstone.formula.algebra.polynomial import (
    BIT_LENGTH,
    CHOOSE,
    EQUAL,
    FLOOR_DIVIDE,
    LOG2,
    MIN,
    MODULO,
    ONE,
    ZERO,
    Applied,
    Atom,
    Polynomial,
    Powers,
    same_value,
)
from torchstone.formula.database.files import public_alias, short_name, with_variant
from torchstone.formula.derive.code_paths import Body, Branch, Derived, InnerCall, bodies_of
from torchstone.formula.derive.parameter_binding import DTYPE_BYTES
from torchstone.formula.language.expression import Number, Value, free_parameters, substitute
from torchstone.formula.language.parse import parse
from torchstone.formula.language.print import show
from torchstone.record.formula import (
    BuiltBy,
    CodeLocation,
    Evidence,
    FlopAnalysis,
    FormulaEntry,
    MemoryAnalysis,
    Setting,
    Status,
    Validation,
)
from torchstone.record.module import Source
from torchstone.units import many

# --- Polynomials as text in the formula language ---


_FIRST = ("B", "S", "tokens", "batch_elements")  # named first in a product


def text_of(form: Polynomial) -> str:
    """A sum of products, without brackets around it."""
    if not form.terms:
        return "0"
    first, *others = sorted(form.ordered, key=lambda term: term[1] < 0)  # what is subtracted stands last
    text = _term(*first)
    for powers, coefficient in others:
        sign, size = ("-", -coefficient) if coefficient < 0 else ("+", coefficient)
        text += f" {sign} {_term(powers, size)}"
    return text


def factor_text(form: Polynomial) -> str:
    """As text_of, in brackets where it is not a single product."""
    text = text_of(form)
    return f"({text})" if len(form.terms) > 1 or _is_fraction(form) else text


def _is_fraction(form: Polynomial) -> bool:
    return any(power < 0 for powers in form.terms for _, power in powers)


def _term(powers: Powers, coefficient: Value) -> str:
    ordered = sorted(powers, key=lambda pair: (pair[0] not in _FIRST, _place(pair[0]), str(pair[0])))
    over = [_power(unknown, power) for unknown, power in ordered if power > 0]
    under = [_power(unknown, -power) for unknown, power in ordered if power < 0]
    if coefficient != 1 or not over:
        over.insert(0, str(coefficient))
    text = " * ".join(over)
    return f"{text} / {under[0]}" if len(under) == 1 else text if not under else f"{text} / ({' * '.join(under)})"


def _place(unknown: Atom) -> int:
    return _FIRST.index(unknown) if isinstance(unknown, str) and unknown in _FIRST else len(_FIRST)


def _power(unknown: Atom, power: int) -> str:
    text = _atom(unknown)
    return text if power == 1 else f"{text}**{power}"


def _atom(unknown: Atom) -> str:
    if isinstance(unknown, str):
        return f"${{{unknown}}}"
    return _function(unknown) if isinstance(unknown, Applied) else f"({show(unknown)})"


def _function(function: Applied) -> str:
    arguments = function.arguments
    match function.name:
        case name if name == FLOOR_DIVIDE:
            return f"({factor_text(arguments[0])} // {factor_text(arguments[1])})"
        case name if name == MODULO:
            return f"({factor_text(arguments[0])} % {factor_text(arguments[1])})"
        case name if name == BIT_LENGTH:
            return f"ceil_log2({text_of(arguments[0] + ONE)})"
        case name if name == LOG2:
            return f"log2({text_of(arguments[0])})"
        case name if name == MIN:
            return f"min({', '.join(map(text_of, arguments))})"
        case name if name == EQUAL:
            left, right = map(text_of, arguments)
            return f"(1 if {left} == {right} else 0)"
        case name if name == CHOOSE:
            left, right, smaller, otherwise = map(text_of, arguments)
            return f"({smaller} if {left} < {right} else {otherwise})"
        case name:
            msg = f"the formula language has no function {name}"
            raise AssertionError(msg)


# --- Entries ---


FLOPS, READS, WRITES = range(3)
DERIVED = "derived"
_USUAL_DTYPE_BYTES = "2"
_ONLY_TYPE = f"{DTYPE_BYTES} == "  # the condition of a formula that was measured in one element type
_USUAL_SWITCHES = {  # as the constructors have them; Linear mostly stands without a bias
    "LayerNorm": {"elementwise_affine": "1", "bias": "1"},
    "RMSNorm": {"elementwise_affine": "1"},
    "Conv1d": {"bias": "1"},
    "Conv2d": {"bias": "1"},
    "BatchNorm2d": {"affine": "1", "track_running_stats": "1"},
    "MultiheadAttention": {"need_weights": "1", "bias": "1"},
}
_LIBRARIES = ("torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The fields that all entries of one derivation share."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    variant: str = ""
    assumptions: tuple[str, ...] = ()
    defaults: Mapping[str, int] = field(default_factory=dict)  # parameter -> its default value
    routes: tuple[str, ...] = ("fitted", "held out")
    settings: Mapping[str, Setting] = field(default_factory=dict)  # that the formulas hold for alone
    built_by: BuiltBy | None = None


def make_entries(
    derived: Mapping[str, Derived], origin: Origin, known: Mapping[str, FormulaEntry]
) -> dict[str, FormulaEntry]:
    """An entry for each class; inner classes come first, or are known."""
    made: dict[str, FormulaEntry] = {}
    for name, one in derived.items():
        made[name] = _EntryBuilder(one, origin, {**known, **made}).entry()
    return made


class _EntryBuilder:
    """Writes the entry of one class."""

    def __init__(self, derived: Derived, origin: Origin, made: Mapping[str, FormulaEntry]) -> None:
        self._derived = derived
        self._origin = origin
        self._made = made

    def entry(self) -> FormulaEntry:
        derived = self._derived
        flops = self._template(lambda body: self._cost(body, FLOPS))
        reads = self._template(lambda body: self._cost(body, READS))
        writes = self._template(lambda body: self._cost(body, WRITES))
        weights = self._weights()
        # A condition of the domain is only checked where all its parameters are given, so every quantity names them.
        conditions = dict.fromkeys(name for one in derived.domain for name in free_parameters(parse(one)))
        needed = {**conditions, **dict.fromkeys([*free_parameters(parse(reads)), *free_parameters(parse(writes))])}
        peak = self._peak()
        for text in (weights, peak):
            if text is not None:
                needed.update(dict.fromkeys(free_parameters(parse(text))))
        depends = self._depends()
        memory = MemoryAnalysis(
            parameters=self._listed(needed),
            reads_template=reads,
            writes_template=writes,
            intermediates_template=peak,
            weights_template=weights,
            module_depends=depends,
        )
        of_sizes = [name for name in conditions if name != DTYPE_BYTES]
        in_flops = dict.fromkeys([*of_sizes, *free_parameters(parse(flops))])
        used = {*in_flops, *needed}
        alias = public_alias(derived.class_name)
        breakdown = self._breakdown()
        return FormulaEntry(
            module_path=derived.class_name,
            variant=self._variant_of(derived.class_name),
            aliases=(alias,) if alias else (),
            code_location=_location(self._origin.sources.get(derived.class_name)),
            flop_analysis=FlopAnalysis(
                parameters=self._listed(in_flops),
                formula_template=flops,
                module_depends=depends,
                breakdown=breakdown,
                thinking_process=" ".join((*sentences_of(breakdown), self._explanation())),
            ),
            memory_analysis=memory,
            defaults={name: text for name, text in self._defaults().items() if name in used},
            domain=derived.domain,
            settings={} if derived.class_name.startswith("torch.nn.") else dict(self._origin.settings),
            built_by=None if derived.class_name.startswith("torch.nn.") else self._origin.built_by,
            assumptions=self._origin.assumptions,
            validation=Validation(status=Status.VALIDATED, validator=DERIVED, date=self._origin.date),
            versions={name: version for name, version in self._origin.versions.items() if name in _LIBRARIES},
            evidence=Evidence(points_checked=derived.points, max_error="0", routes=self._origin.routes),
        )

    # --- templates ---

    def _template(self, text: Callable[[Body], str]) -> str:
        return show(parse(self._text(self._derived.body, text)))

    def _text(self, body: Body | Branch, text: Callable[[Body], str]) -> str:
        if isinstance(body, Body):
            return text(body)
        yes, no = self._text(body.yes, text), self._text(body.no, text)
        return no if _says_the_same(body, yes, no) else f"({yes}) if {_condition(body)} else ({no})"

    def _cost(self, body: Body, quantity: int) -> str:
        own = body.own(quantity)
        terms = _counted([self._call(call, quantity) for call in body.inner if self._costs(call, quantity)])
        if own.terms or not terms:
            terms.append(text_of(own))
        return " + ".join(terms)

    def _costs(self, call: InnerCall, quantity: int) -> bool:
        """Whether a call costs anything at all; a layer that does nothing in inference is omitted."""
        entry = self._made[call.class_name]
        memory = entry.memory_analysis
        assert memory is not None  # noqa: S101 - every derived entry has it
        return (entry.flop_analysis.formula_template, memory.reads_template, memory.writes_template)[quantity] != "0"

    def _call(self, call: InnerCall, quantity: int | None) -> str:
        entry = self._made[call.class_name]
        memory = entry.memory_analysis
        assert memory is not None  # noqa: S101 - every derived entry has it
        names = entry.flop_analysis.parameters if quantity == FLOPS else memory.parameters
        defaults = entry.defaults
        bound = [
            f"{name}={text_of(call.bindings[name])}"
            for name in names
            if not _is_default(call.bindings, name, defaults.get(name))
        ]
        module = with_variant(short_name(call.class_name), entry.variant)
        text = f"{{{module}}}({', '.join(bound)})"
        return text if call.count == ONE else f"{factor_text(call.count)} * {text}"

    def _peak(self) -> str | None:
        if any(body.activations is None for body in bodies_of(self._derived.body)):
            return None
        return self._template(_largest)

    def _weights(self) -> str | None:
        if any(body.weights is None for body in bodies_of(self._derived.body)):
            return None
        for call in inner_calls(self._derived.body):
            memory = self._made[call.class_name].memory_analysis
            if memory is None or memory.weights_template is None:
                return None
        return self._template(self._weights_text)

    def _weights_text(self, body: Body) -> str:
        assert body.weights is not None  # noqa: S101 - asked before
        terms = _counted([self._call(call, None) for call in body.inner if self._holds(call)])
        if terms and body.weights.terms and max(body.weights.coefficients) < 0:
            return f"{' + '.join(terms)} - {factor_text(-body.weights)}"
        if body.weights.terms or not terms:
            terms.append(text_of(body.weights))
        return " + ".join(terms)

    def _holds(self, call: InnerCall) -> bool:
        memory = self._made[call.class_name].memory_analysis
        return memory is not None and memory.weights_template != "0"

    # --- what stands beside the templates ---

    def _variant_of(self, class_name: str) -> str:
        return "" if class_name.startswith("torch.nn.") else self._origin.variant

    def _depends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(call.class_name for call in inner_calls(self._derived.body)))

    def _breakdown(self) -> dict[str, str]:
        """The parts of the FLOPs, where all code paths have the same."""
        body = self._derived.body
        while isinstance(body, Branch):
            if not _says_the_same(body, self._text(body.yes, self._flops), self._text(body.no, self._flops)):
                return {}
            body = body.no
        parts: dict[str, str] = {}
        for call in body.inner:
            if self._costs(call, FLOPS):
                label = unused_label(call.name or short_name(call.class_name), parts)
                parts[label] = show(parse(self._call(call, FLOPS)))
        for part in body.parts:
            if part.forms[FLOPS].terms:
                parts[unused_label(label_of_op(part.op), parts)] = show(parse(text_of(part.forms[FLOPS])))
        return parts

    def _flops(self, body: Body) -> str:
        return self._cost(body, FLOPS)

    def _explanation(self) -> str:
        derived = self._derived
        return (
            f"Fitted to what ran at {many(derived.points - derived.held_out, 'setting')}, equal at "
            f"{derived.held_out} more."
        )

    def _listed(self, needed: Mapping[str, None]) -> tuple[str, ...]:
        return tuple(name for name in self._derived.parameters if name in needed)

    def _defaults(self) -> dict[str, str]:
        known = self._derived.parameters
        defaults = dict.fromkeys(self._derived.switches, "0") | _USUAL_SWITCHES.get(
            short_name(self._derived.class_name), {}
        )
        defaults["distinct_tokens"] = "tokens"
        only = (one.removeprefix(_ONLY_TYPE) for one in self._derived.domain if one.startswith(_ONLY_TYPE))
        defaults[DTYPE_BYTES] = next(only, _USUAL_DTYPE_BYTES)
        defaults.update({name: str(value) for name, value in self._origin.defaults.items()})
        if "num_heads" in known:
            defaults["num_kv_heads"] = "num_heads"
            if "hidden_size" in known:
                defaults["head_dim"] = "hidden_size // num_heads"
        return defaults


# --- Words for the terms ---


_OP_LABELS = {
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_flash_attention": "attention",
    "_scaled_dot_product_efficient_attention": "attention",
    "scaled_dot_product_attention": "attention",
    "bmm": "matrix products",
    "baddbmm": "matrix products",
    "mm": "matrix products",
    "addmm": "matrix products",
    "_softmax": "softmax",
    "_grouped_mm": "expert products",
}
_OP_SENTENCES = {
    "attention": "scores of all pairs of positions, their softmax and the weighted sum of the values",
    "matrix products": "products of matrices that the class computes itself: twice rows times columns times inner size",
    "softmax": "five FLOPs for each element",
    "expert products": "products of the tokens with the weights of the experts they are routed to",
    "convolution": "two FLOPs for each weight at each position of the result",
}


def label_of_op(op: str) -> str:
    """The name of a term of ops: a word for the common ones, else the op without namespace and overload."""
    name = op.split(".")[1] if op.count(".") > 1 else op
    return _OP_LABELS.get(name, name)


def unused_label(label: str, taken: Mapping[str, str]) -> str:
    """The label, with a number where it stands for another term already."""
    number = 2
    unused = label
    while unused in taken:
        unused = f"{label} ({number})"
        number += 1
    return unused


def sentences_of(breakdown: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each term of a breakdown."""
    for label, template in breakdown.items():
        text = template.replace("${", "").replace("}", "").replace("{", "")
        called = _CALLED.search(template)
        words = _OP_SENTENCES.get(label.partition(" (")[0], "one FLOP or a few for each element that these ops compute")
        yield f"{label}: {text} ({'calls of ' + called['name'] if called else words})."


_CALLED = re.compile(r"\{(?P<name>\w+)(?:\[[^]]*\])?\}\(")


def _counted(terms: Sequence[str]) -> list[str]:
    """Equal neighbours as one term with their number."""
    return [f"{number} * {text}" if number > 1 else text for text, number in _runs(terms)]


def _runs(terms: Sequence[str]) -> list[tuple[str, int]]:
    return [(text, len(list(same))) for text, same in groupby(terms)]


def _says_the_same(branch: Branch, yes: str, no: str) -> bool:
    """Whether the second side also gives the first one where the condition holds: S is B * S where B is 1."""
    if yes == no:
        return True
    names = [name for name in branch.subject.unknowns if branch.subject == Polynomial.unknown(name)]
    if not names:
        return False
    return same_value(parse(yes), substitute(parse(no), {names[0]: Number(branch.equals)}))


def _condition(branch: Branch) -> str:
    """The condition as text, without a division where there is one."""
    subject = branch.subject
    if len(subject.terms) == 1:
        powers, coefficient = subject.ordered[0]
        threshold = _threshold(subject) if branch.equals == 1 else None
        if threshold is not None:
            return threshold
        over = Polynomial.constant(coefficient)
        under = Polynomial.constant(branch.equals)
        for unknown, power in powers:
            if power > 0:
                over *= Polynomial.unknown(unknown, power)
            else:
                under *= Polynomial.unknown(unknown, -power)
        return f"{text_of(over)} == {text_of(under)}"
    return f"{text_of(subject)} == {branch.equals}"


def unequal_text(edge: Polynomial) -> str:
    """The condition that an equality does not hold, for a domain; the polynomial is 1 where it holds."""
    ((monomial, _),) = edge.terms.items()
    ((atom, _),) = monomial
    assert isinstance(atom, Applied)  # noqa: S101 - an equality
    left, right = (factor_text(side) for side in atom.arguments)
    return show(parse(f"{left} != {right}"), plain=True)


def _threshold(subject: Polynomial) -> str | None:
    """A subject that is 1 where a comparison holds and 0 elsewhere, as that comparison; None for any other."""
    ((unknown, power), *others), coefficient = subject.ordered[0] if subject.ordered[0][0] else (((ONE, 0),), 0)
    if others or coefficient != 1 or power != 1 or not isinstance(unknown, Applied):
        return None
    if unknown.name == EQUAL:
        return " == ".join(factor_text(side) for side in unknown.arguments)
    if unknown.name != CHOOSE:
        return None
    left, right, smaller, otherwise = unknown.arguments
    if (smaller, otherwise) == (ZERO, ONE):
        return f"{text_of(left)} >= {text_of(right)}"
    if (smaller, otherwise) != (ONE, ZERO):
        return None
    is_remainder = right == ONE and str(left).startswith(f"1*{MODULO}(") and len(left.terms) == 1
    return f"{text_of(left)} == 0" if is_remainder else f"{text_of(left)} < {text_of(right)}"


def _is_default(bindings: Mapping[str, Polynomial], name: str, default: str | None) -> bool:
    """Whether the argument can be omitted: it is the default number, or that of another argument."""
    if default is None:
        return False
    if default in bindings:
        return bindings[name] == bindings[default] and default == "tokens"
    return default.isdigit() and bindings[name] == Polynomial.constant(int(default))


def _largest(body: Body) -> str:
    texts = sorted({text_of(one) for one in body.activations or ()})
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


def inner_calls(body: Body | Branch) -> list[InnerCall]:
    """The calls of other classes on all code paths."""
    return [call for one in bodies_of(body) for call in one.inner]


def _location(source: Source | None) -> CodeLocation | None:
    if source is None:
        return None
    return CodeLocation(file=_within_library(source.file), line_start=source.first_line, line_end=source.last_line)


def _within_library(file: str) -> str:
    """The path from the library's own folder on, so that it is the same on every machine."""
    parts: Sequence[str] = file.replace("\\", "/").split("/")
    for place in range(len(parts) - 1, -1, -1):
        if parts[place] in _LIBRARIES:
            return "/".join(parts[place:])
    return parts[-1]
