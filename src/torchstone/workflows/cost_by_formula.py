"""A model -> each module's cost by formula, beside its traced cost; missing formulas are derived or requested."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from torchstone.errors import FormulaError, InputError, TorchstoneError
from torchstone.formula.database.files import (
    Formulas,
    key_of,
    own_database,
    remove_entry,
    save_entries,
    save_entry,
    with_variant,
)
from torchstone.record.cost import Causal
from torchstone.record.formula import FormulaCost, FormulaEntry, MeasuredCost, Setting
from torchstone.record.trace import Trace
from torchstone.units import many
from torchstone.workflows.capture_cache import (
    CaptureKey,
    keep_formula_cost,
    keep_settings,
    kept_formula_cost,
    kept_settings,
    state_of_sources,
)
from torchstone.workflows.cost import CostRequest, load_priced_trace, logits_keywords, price_trace, pricing_of
from torchstone.workflows.model_source import ModelRequest, capture_key
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torchstone.formula.agent.prompt import ClassSource
    from torchstone.formula.agent.providers import Provider
    from torchstone.formula.derive.observe import Observation, Sample
    from torchstone.formula.derive.validate import Options
    from torchstone.models.pretrained import Blueprint

_DECODE = "decode"  # the phase, and the variant of formulas for it
_ROUNDS = 3  # answers that an agent may give for one class
_POINTS = 3  # settings at which a transformers model is measured, beside the requested one


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaCostRequest:
    """A model to price, and the provider for formulas that cannot be derived."""

    cost: CostRequest
    agent: "Provider | None" = None  # None: classes without a formula stay traced only


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaCostOutcome:
    """The trace of a run, and the cost of its modules by formula and as traced."""

    trace: Trace
    result: FormulaCost
    warnings: tuple[str, ...]  # formula files that cannot be read, an agent that does not answer


def cost_by_formula(request: FormulaCostRequest, progress: Progress = SILENT) -> FormulaCostOutcome:
    """Trace a model and evaluate the formula of every module beside its traced cost.

    Classes without a formula are derived where transformers builds the model, and requested from the agent where there
    is one. New formulas are stored in the user's own database, an agent's answers as pending; classes that still have
    none are in the result with the reason. Raises InputError for conventions that formulas do not have (--count macs,
    --causal half), and for a prediction, a split plan or another counter, which take the trace alone.
    """
    _refuse_other_conventions(request.cost)
    _refuse_results_of_the_trace(request.cost)
    trace = load_priced_trace(request.cost, progress)
    key = capture_key(request.cost.model, logits_keywords(request.cost.logits))
    state = _state_of(request, trace)  # before the evaluation, which may add formulas: those are "derived now" once
    kept = None if state is None else kept_formula_cost(key, state)
    if kept is not None:
        return FormulaCostOutcome(trace=trace, result=kept, warnings=())
    outcome = _evaluated(request, trace, key, progress)
    if state is not None and not outcome.warnings:
        keep_formula_cost(key, state, outcome.result)
    return outcome


def _state_of(request: FormulaCostRequest, trace: Trace) -> str | None:
    """What the costs by formula depend on; None where more than files decides, or where they are to be made again."""
    if request.agent is not None or request.cost.prices is not None or not request.cost.model.cached:
        return None
    try:
        seen = own_database().stat()
        own = f"{seen.st_mtime_ns} {seen.st_size}"
    except OSError:
        own = "none"
    pricing = repr(pricing_of(request.cost))
    facts = (trace.provenance.created, pricing, own, state_of_sources("cost", "formula", "record", "workflows"))
    return sha256(repr(facts).encode()).hexdigest()


def _refuse_other_conventions(request: CostRequest) -> None:
    """Raise InputError for another convention: formulas count FLOPs, with attention in full."""
    conventions = request.pricing.conventions
    given = {
        "--count macs": conventions.multiply_add == 1,
        "--causal half": conventions.causal is Causal.HALF,
    }
    wrong = next((option for option, is_given in given.items() if is_given), None)
    if wrong is not None:
        msg = f"--by formula counts FLOPs, with attention in full; drop {wrong}"
        raise InputError(msg)


def _refuse_results_of_the_trace(request: CostRequest) -> None:
    """Raise InputError for what is computed from a trace and is not part of a cost by formula."""
    given = {
        "--hardware": request.pricing.hardware,
        "--tp": request.pricing.devices,
        "--compare-with": request.compare_with,
    }
    wrong = next((option for option, value in given.items() if value is not None), None)
    if wrong is not None:
        msg = f"--by formula compares the cost of each module; drop it or {wrong}"
        raise InputError(msg)


def _evaluated(request: FormulaCostRequest, trace: Trace, key: CaptureKey, progress: Progress) -> FormulaCostOutcome:
    from torchstone.formula.database.compute import available_formulas
    from torchstone.formula.derive.observe import Sample, observe
    from torchstone.formula.derive.validate import cost_by_formula as evaluate

    model = trace.provenance.model
    table = price_trace(trace, pricing_of(request.cost))
    formulas, variant = available_formulas(), _variant_of(trace)
    sample = Sample(trace=trace, table=table, known=_recorded_sizes(trace))
    seen = observe(sample)
    settings = kept_settings(key)
    known = _Known(formulas, _other_settings(formulas, settings), formulas.problems)
    needs_model = known.need_the_model(seen, variant, knows_settings=settings is not None)
    if not trace.configuration or request.agent is not None or needs_model:
        blueprint = _transformers_blueprint(model, request.cost.model)
        settings = _settings_of(blueprint)
        if settings is not None:
            keep_settings(key, settings)
        sample = Sample(trace=trace, table=table, known=_known_sizes(trace, blueprint))
        seen = observe(sample)
        known = _Known.of(formulas, seen, variant, settings)
    else:
        blueprint = None
    derived: dict[str, str] = {}  # class -> why it could not be derived, "" where it could
    missing = known.missing(seen, variant)
    if missing and blueprint is not None:
        with progress.step(f"deriving {many(len(missing), 'class', 'classes')} without a formula"):
            derived = known.derive(missing, seen, _Setup(blueprint=blueprint, trace=trace, request=request.cost.model))
    formulas, warnings = known.formulas, known.warnings
    if request.agent is not None:
        reasons = {name: derived.get(name, "") for name in known.missing(seen, variant)}
        config = None if blueprint is None else blueprint.config
        unknown = _Unknown(reasons=reasons, variant=variant, model_type=config.model_type if config else None)
        answers = _ask(unknown, sample, formulas, request.agent, progress)
        formulas, derived, warnings = answers.formulas, {**derived, **answers.refused}, (*warnings, *answers.warnings)
    result = evaluate(model, seen, formulas, derived, variant, known.blocked)
    result = msgspec.structs.replace(result, optimizer=table.optimiser)
    return FormulaCostOutcome(trace=trace, result=result, warnings=warnings)


def _variant_of(trace: Trace) -> str:
    """The code path that was traced: with a backward pass, or in the decode phase."""
    from torchstone.formula.derive.validate import variant_of

    return variant_of(_path_of(trace))


def _path_of(trace: Trace) -> "Options":
    from torchstone.formula.derive.validate import Options

    has_backward = trace.failure is None and trace.recorded_ops.forward_calls < trace.size.op
    return Options(dtype=_dtype_of(trace), decode=trace.provenance.phase == _DECODE, backward=has_backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    """What formulas are derived from: the configuration of the model, its trace and the options it was built with."""

    blueprint: "Blueprint"
    trace: Trace
    request: ModelRequest


@dataclass(slots=True)
class _Known:
    """The formulas at hand, and those of them that do not hold for this model."""

    formulas: Formulas
    blocked: dict[str, str]  # key of an entry -> why it is not used
    warnings: tuple[str, ...]

    @staticmethod
    def of(
        formulas: Formulas, seen: "Sequence[Observation]", variant: str, settings: Mapping[str, Setting] | None
    ) -> "_Known":
        """Compare every formula with the trace: what it contradicts is not used, and removed where it is the user's."""
        from torchstone.formula.derive.gate import judge
        from torchstone.formula.derive.validate import entry_of_call

        known = _Known(formulas, _other_settings(formulas, settings), formulas.problems)
        wrong = judge(formulas, seen, variant, entry_of_call).wrong_but_for_copies
        calls = {one.class_name: one for one in seen}
        for name, contradiction in wrong.items():
            entry = entry_of_call(formulas, calls[name], variant)
            key = "" if entry is None else key_of(entry.module_path, entry.variant)
            if entry is None or key in known.blocked:
                continue
            name_of_entry = with_variant(entry.module_path, entry.variant)
            known.blocked[key] = f"its formula does not hold for this model: {contradiction.text}"
            if key in formulas.own:
                remove_entry(name_of_entry)
                known.warnings += (f"removed {name_of_entry} from your formulas: {contradiction.text}",)
        return known

    def need_the_model(self, seen: "Sequence[Observation]", variant: str, *, knows_settings: bool) -> bool:
        """Whether a class has no formula that the trace confirms, or one of the user's for unknown settings."""
        from torchstone.formula.derive.gate import judge
        from torchstone.formula.derive.validate import entry_of_call

        entries = [entry_of_call(self.formulas, one, variant) for one in seen]
        own = any(one is not None and key_of(one.module_path, one.variant) in self.formulas.own for one in entries)
        if (own and not knows_settings) or self.missing(seen, variant):
            return True
        return bool(judge(self.formulas, seen, variant, entry_of_call).wrong_but_for_copies)

    def missing(self, seen: "Sequence[Observation]", variant: str) -> list[str]:
        """Classes without an entry for the code path and the sizes they were called with, inner ones first."""
        from torchstone.formula.derive.observe import by_class, children_first
        from torchstone.formula.derive.validate import entry_of_call, is_outside

        grouped = by_class(seen)

        def has_none(one: "Observation") -> bool:
            entry = entry_of_call(self.formulas, one, variant)
            if entry is None or key_of(entry.module_path, entry.variant) in self.blocked:
                return True
            return entry.built_by is not None and is_outside(self.formulas, entry, one)

        return [name for name in children_first(grouped) if any(has_none(one) for one in grouped[name])]

    def derive(self, missing: Sequence[str], seen: "Sequence[Observation]", setup: _Setup) -> dict[str, str]:
        """Derive the missing formulas for the model's configuration; those that the trace confirms are stored."""
        from torchstone.formula.derive.derive_model import ConfiguredModel, derive_model

        options = _path_of(setup.trace)
        image_size = setup.request.options.image_size
        from torchstone.workflows.formula_derive import make_bench

        bench = make_bench("deriving formulas")
        model = ConfiguredModel(blueprint=setup.blueprint, bench=bench, options=options, image_size=image_size)
        library = derive_model(model, seen)
        found = {name: library.entries[name] for name in missing if name in library.entries}
        new = {key_of(entry.module_path, entry.variant): entry for entry in found.values()}
        if new:
            save_entries(new.values())
        for key in new:
            self.blocked.pop(key, None)
        self.formulas = Formulas(entries={**self.formulas.entries, **new}, own=self.formulas.own | new.keys())
        refused = {name: one.reason for name, one in library.refused.items()}
        whole = refused.get(setup.blueprint.config.model_type, "it was not seen in any run")
        return {name: "" if name in found else refused.get(name, whole) for name in missing}


def _settings_of(blueprint: "Blueprint | None") -> dict[str, Setting] | None:
    if blueprint is None:
        return None
    from torchstone.formula.derive.derive_model import settings_of

    return settings_of(blueprint.config)


def _other_settings(formulas: Formulas, own: Mapping[str, Setting] | None) -> dict[str, str]:
    """By key: the entries that were derived at other settings than those of the model, where these are known."""
    if own is None:
        return {}
    blocked = {}
    for key in formulas.own:  # shipped entries are compared with the trace alone
        entry = formulas.entries[key]
        other = next((name for name, value in entry.settings.items() if name not in own or own[name] != value), None)
        if other is not None:
            blocked[key] = f"its formula is for {other}={entry.settings[other]}, this model has {own.get(other)}"
    return blocked


def _dtype_of(trace: Trace) -> str:
    """The element type of most parameters."""
    types = [trace.tensors[one.tensor].spec.dtype for module in trace.modules for one in module.parameters]
    floating = [one for one in types if one.startswith(("float", "bfloat"))]
    return max(sorted(set(floating)), key=floating.count, default="float32")


def _transformers_blueprint(name: str, request: ModelRequest) -> "Blueprint | None":
    """The configuration and class of a transformers model; None for any other model."""
    if find_spec("transformers") is None:
        return None
    from torchstone.models.pretrained import find_blueprint
    from torchstone.workflows.formula_derive import built_by_transformers

    if not built_by_transformers(name):
        return None
    try:
        return find_blueprint(name, request.options)
    except TorchstoneError:  # a saved trace of a model that is not on this machine
        return None


def _known_sizes(trace: Trace, blueprint: "Blueprint | None") -> dict[str, int]:
    """The parameters of the configuration, and the lengths of the sequences that the whole model was called with."""
    if blueprint is None:
        return {}
    from torchstone.formula.derive.parameter_binding import lengths_of
    from torchstone.formula.derive.sampling_plans import parameters_of

    return {**parameters_of(blueprint.config), **lengths_of(trace.recorded_calls[0])}


def _recorded_sizes(trace: Trace) -> dict[str, int]:
    """The same from the trace alone, which needs neither torch nor transformers; empty where it has none."""
    from torchstone.formula.derive.parameter_binding import lengths_of

    return {**trace.configuration, **lengths_of(trace.recorded_calls[0])} if trace.configuration else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unknown:
    """Classes without a formula, each with the reason why it could not be derived, inner ones first."""

    reasons: Mapping[str, str]
    variant: str
    model_type: str | None  # None for a model that transformers does not build


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """The formulas with an agent's correct answers, and why the other classes still have none."""

    formulas: Formulas
    refused: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def _ask(unknown: _Unknown, sample: "Sample", formulas: Formulas, agent: "Provider", progress: Progress) -> _Answers:
    """Ask for one class after the other; correct answers are stored as pending, and may be used by the next class."""
    from torchstone.formula.agent.providers import ProviderError

    refused: dict[str, str] = {}
    if not unknown.reasons:
        return _Answers(formulas=formulas, refused=refused)
    with progress.step("measuring classes without a formula"):
        measured = _measured(unknown, sample)
    for name in unknown.reasons:
        try:
            entry, problem = _answer(name, unknown, measured.get(name, []), formulas, agent, sample.trace)
        except ProviderError as error:  # it will not answer for the other classes either
            warning = f"{error} (classes without a formula stay traced only)"
            return _Answers(formulas=formulas, refused=refused, warnings=(warning,))
        except FormulaError as error:
            refused[name] = str(error)
            continue
        if entry is None:
            refused[name] = f"no answer of {agent.name} was correct: {problem}"
            continue
        save_entry(entry)
        key = key_of(entry.module_path, entry.variant)
        formulas = Formulas(entries={**formulas.entries, key: entry}, own=formulas.own | {key})
    return _Answers(formulas=formulas, refused=refused)


def _answer(
    name: str, unknown: _Unknown, points: list[MeasuredCost], formulas: Formulas, agent: "Provider", trace: Trace
) -> tuple[FormulaEntry | None, str]:
    """The accepted entry of a class, or None and what was wrong with the last answer."""
    from torchstone.formula.agent.ask import FEWEST_POINTS, Subject, ask_for_entry, discrepancy

    # Half of the points stay hidden where there are enough: an answer that lists the others is wrong there.
    shown = points[::2] if len(points) >= 2 * FEWEST_POINTS else points
    hidden = [point for point in points if point not in shown]
    subject = Subject(
        class_path=name,
        source=_source(name, trace),
        points=shown,
        versions=dict(trace.provenance.versions),
        failure=unknown.reasons[name],
        variant=unknown.variant,
    )
    outcome = ask_for_entry(
        subject,
        agent,
        formulas,
        rounds=_ROUNDS,
        on_round=lambda _number, _problem: None,
        refuted=lambda entry: discrepancy(formulas, entry, hidden) or "",
    )
    return outcome.entry, outcome.attempts[-1].problem if outcome.attempts else ""


def _measured(unknown: _Unknown, sample: "Sample") -> dict[str, list[MeasuredCost]]:
    """The cost of every call of the classes: in this run, and at other sizes where the model can be built at them.

    Calls with equal sizes are one point: an agent's formula is judged by the number of distinct points it explains.
    """
    from torchstone.formula.derive.observe import observe
    from torchstone.formula.derive.parameter_binding import DTYPE_BYTES

    measured: dict[str, dict[tuple[tuple[str, int], ...], MeasuredCost]] = {}
    for one in (sample, *_samples_at_other_sizes(unknown)):
        for seen in observe(one):
            if seen.class_name in unknown.reasons and not seen.unpriced:
                sizes = {**seen.parameters.sizes, DTYPE_BYTES: seen.parameters.dtype_bytes}
                cost = MeasuredCost(
                    parameters=sizes,
                    flops=seen.whole.flops,
                    reads_bytes=seen.whole.reads,
                    writes_bytes=seen.whole.writes,
                    live_bytes=seen.peak_bytes,
                    weight_bytes=seen.weight_bytes,
                )
                measured.setdefault(seen.class_name, {}).setdefault(tuple(sizes.items()), cost)
    return {name: list(found.values()) for name, found in measured.items()}


def _samples_at_other_sizes(unknown: _Unknown) -> "Iterator[Sample]":
    if unknown.model_type is None:
        return
    from torchstone.formula.derive.samples import plan_of, sample_model_randomly
    from torchstone.formula.derive.validate_library import options_of
    from torchstone.workflows.formula_derive import make_bench

    options = options_of(unknown.variant)
    plan = plan_of(unknown.model_type, decode=options.decode)
    points = plan.random_points(Random(0), _POINTS)  # noqa: S311 - not for secrets
    yield from sample_model_randomly(unknown.model_type, plan, make_bench("asking for formulas"), options, points)


def _source(name: str, trace: Trace) -> "ClassSource":
    """The source text of a class: from an installed library, or from the file that the trace names."""
    from torchstone.formula.agent.prompt import ClassSource, source_of_class
    from torchstone.record.formula import CodeLocation

    try:
        return source_of_class(name)
    except FormulaError:
        where = trace.sources.get(name)
        if where is None or not Path(where.file).is_file():
            raise
    lines = Path(where.file).read_text(encoding="utf-8").splitlines()
    return ClassSource(
        file=Path(where.file),
        location=CodeLocation(file=Path(where.file).name, line_start=where.first_line, line_end=where.last_line),
        text="\n".join(lines[where.first_line - 1 : where.last_line]),
    )
