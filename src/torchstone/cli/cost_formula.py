"""torchstone cost MODEL --by formula: every module by its formula, beside what was traced."""

from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.options import Session
from torchstone.cli.progress import TerminalProgress, step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError, TorchstoneError

if TYPE_CHECKING:
    from torchstone.cli.cost import CostOptions
    from torchstone.formula.database import Formulas
    from torchstone.formula.derive.observation import Observation
    from torchstone.record.formula_coverage import FormulaCost
    from torchstone.record.trace import Trace
    from torchstone.workflows.cost import CostRequest
    from torchstone.workflows.model_source import ModelRequest

SCHEMA = "torchstone/cost_by_formula/1"
DECODE = "decode"  # the phase, and the variant of formulas for it
_USUAL = {"--count": "flops", "--causal": "full"}


def run_by_formula(request: "CostRequest", options: "CostOptions", session: Session) -> int:
    """Trace the model, evaluate the formula of every module, and show both side by side."""
    from torchstone.workflows.cost import load_priced_trace

    given = {"--count": options.count, "--causal": options.causal}
    changed = [f"{name} {given[name]}" for name, usual in _USUAL.items() if given[name] != usual]
    if changed or request.model.backward:
        msg = f"--by formula counts forward FLOPs in full; drop {changed[0] if changed else '--backward'}"
        raise InputError(msg)
    trace = load_priced_trace(request, TerminalProgress(session))
    result = _by_formula(trace, request, options, session)
    click.echo(_document(result) if options.as_json else _text(result, options, session))
    return EXIT_FINDINGS if result.disagreeing or trace.failure is not None else EXIT_FINE


def _by_formula(trace: "Trace", request: "CostRequest", options: "CostOptions", session: Session) -> "FormulaCost":
    from torchstone.cli.formula import load_formulas
    from torchstone.formula.derive.observation import Sample, observe
    from torchstone.formula.whole_model import cost_by_formula
    from torchstone.workflows.cost import price_trace, pricing_of

    config = _config(trace.provenance.model, request.model)
    sample = Sample(trace=trace, table=price_trace(trace, pricing_of(request)), known=_known(trace, config))
    seen = observe(sample)
    variant = DECODE if trace.provenance.phase == DECODE else ""
    formulas = load_formulas()
    missing = _without_formula(seen, formulas, variant)
    derived: dict[str, str] = {}
    if missing and config is not None:
        with step(f"deriving {len(missing)} classes without a formula", session):
            formulas, derived = _derived_too(formulas, missing, config.model_type, variant)
    if options.agent:
        from torchstone.cli.cost_agent import Unknown, with_answers

        reasons = {name: derived.get(name, "") for name in _without_formula(seen, formulas, variant)}
        unknown = Unknown(reasons=reasons, variant=variant, model_type=config and config.model_type)
        formulas, refused = with_answers(formulas, unknown, sample, options, session)
        derived = {**derived, **refused}
    return cost_by_formula(trace.provenance.model, seen, formulas, derived, variant)


def _without_formula(seen: "list[Observation]", formulas: "Formulas", variant: str) -> list[str]:
    """Classes that have no entry for the way they were called, inner ones first."""
    from torchstone.formula.derive.observation import by_class, children_first
    from torchstone.formula.whole_model import entry_of_call

    grouped = by_class(seen)
    return [
        name
        for name in children_first(grouped)
        if any(entry_of_call(formulas, one, variant) is None for one in grouped[name])
    ]


def _config(name: str, request: "ModelRequest") -> Any:
    """The configuration of a transformers model; None for a model from anywhere else."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        return None
    from torchstone.models.pretrained import find_blueprint
    from torchstone.workflows.formula_derive import built_by_transformers

    if not built_by_transformers(name):
        return None
    try:
        return find_blueprint(name, request.options).config
    except TorchstoneError:  # a saved trace of a model that is not at hand
        return None


def _known(trace: "Trace", config: Any) -> dict[str, int]:
    """The parameters of the configuration, and the lengths of the sequences the whole model was given."""
    if config is None:
        return {}
    from torchstone.formula.derive.given_lengths import lengths_of
    from torchstone.formula.derive.plans import parameters_of

    return {**parameters_of(config), **lengths_of(trace.module_calls[0])}


def _derived_too(
    formulas: "Formulas", missing: list[str], model_type: str, variant: str
) -> "tuple[Formulas, dict[str, str]]":
    """The formulas with what can be derived of the missing classes, kept for the next time; and why others cannot."""
    from torchstone.formula.database import Formulas, save_entry
    from torchstone.formula.derive.built_models import Options
    from torchstone.formula.names import key_of
    from torchstone.workflows.formula_derive import derive_model_type, with_callees

    library = derive_model_type(model_type, Options(decode=variant == DECODE))
    found = [library.entries[name] for name in missing if name in library.entries]
    new = {}
    for entry in with_callees(found, library):
        save_entry(entry)
        new[key_of(entry.module_path, entry.variant)] = entry
    refused = {name: one.reason for name, one in library.refused.items()}
    whole = refused.get(model_type, "it was not seen in any run")
    outcome = {name: "" if name in library.entries else refused.get(name, whole) for name in missing}
    return Formulas(entries={**formulas.entries, **new}), outcome


def _document(result: "FormulaCost") -> bytes:
    import msgspec

    from torchstone.record.formula_coverage import Coverage

    coverage = {str(one): result.count(one) for one in Coverage}
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "model": result.model,
            "coverage": coverage,
            "disagreeing": [module.path for module in result.disagreeing],
            "evaluation_s": result.evaluation_s,
            "modules": result.modules,
        }
    )


def _text(result: "FormulaCost", options: "CostOptions", session: Session) -> str:
    from torchstone.report.formula_cost_text import formula_cost_text
    from torchstone.report.text import coloured, plain

    paint = coloured if session.uses_color else plain
    return formula_cost_text(result, depth=options.depth, text=options.text, fold=not options.no_fold, paint=paint)
