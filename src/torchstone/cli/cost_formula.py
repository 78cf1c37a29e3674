"""torchstone cost MODEL --by formula: every module by its formula, beside what was traced."""

from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.cost_pricing import costs_of, logits_argument
from torchstone.cli.model_options import ModelRequest, requested_trace
from torchstone.cli.options import Session
from torchstone.cli.progress import step
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError, TorchstoneError

if TYPE_CHECKING:
    from torchstone.formula.database import Formulas
    from torchstone.record.formula_coverage import FormulaCost
    from torchstone.record.trace import Trace

SCHEMA = "torchstone/cost_by_formula/1"
_USUAL = {"count": "flops", "causal": "full"}


def run_by_formula(request: ModelRequest, given: dict[str, Any], session: Session) -> int:
    """Trace the model, evaluate the formula of every module, and show both side by side."""
    changed = [f"--{name} {given[name]}" for name, usual in _USUAL.items() if given[name] != usual]
    if changed or request.backward:
        msg = f"--by formula counts forward FLOPs in full; leave {changed[0] if changed else '--backward'} out"
        raise InputError(msg)
    trace = requested_trace(request, session, logits_argument(given["logits"]))
    result = _by_formula(trace, request, given, session)
    click.echo(_document(result) if given["as_json"] else _text(result, given, session))
    return EXIT_FINDINGS if result.disagreeing or trace.failure is not None else EXIT_FINE


def _by_formula(trace: "Trace", request: ModelRequest, given: dict[str, Any], session: Session) -> "FormulaCost":
    from torchstone.cli.formula_options import load
    from torchstone.formula.derive.observation import Sample, observe
    from torchstone.formula.whole_model import cost_by_formula

    config = _config(trace.provenance.model, request)
    sample = Sample(trace=trace, table=costs_of(trace, request, given), known=_known(trace, config))
    seen = observe(sample)
    variant = "decode" if trace.provenance.phase == "decode" else ""
    formulas = load(session)
    missing = sorted({one.class_name for one in seen if formulas.get(one.class_name) is None})
    derived: dict[str, str] = {}
    if missing and config is not None and not variant:
        with step(f"deriving {len(missing)} classes without a formula", session):
            formulas, derived = _derived_too(formulas, missing, config.model_type)
    return cost_by_formula(trace.provenance.model, seen, formulas, derived, variant)


def _config(name: str, request: ModelRequest) -> Any:
    """The configuration of a transformers model; None for a model from anywhere else."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        return None
    from torchstone.cli.formula_deriving import built_by_transformers
    from torchstone.models.pretrained import find_blueprint

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
    from torchstone.formula.derive.plans import parameters_of
    from torchstone.formula.derive.reading import DECODER_LENGTH, ENCODER_LENGTH
    from torchstone.record.value import tensors_in

    known = parameters_of(config)
    for argument in trace.module_calls[0].signature.arguments:
        shapes = [spec.shape for spec in tensors_in(argument.value)]
        name = {"input_ids": ENCODER_LENGTH, "decoder_input_ids": DECODER_LENGTH}.get(argument.name)
        if name is not None and config.is_encoder_decoder and shapes:
            known[name] = shapes[0][1]
    return known


def _derived_too(formulas: "Formulas", missing: list[str], model_type: str) -> "tuple[Formulas, dict[str, str]]":
    """The formulas with what can be derived of the missing classes, kept for the next time; and why others cannot."""
    from torchstone.cli.formula_bench import make_bench
    from torchstone.cli.formula_deriving import with_callees
    from torchstone.formula.database import Formulas, save_entry
    from torchstone.formula.derive.library import Library
    from torchstone.formula.names import key_of

    library = Library()
    library.add_model(model_type, make_bench("deriving formulas"), lambda _: None)
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


def _text(result: "FormulaCost", given: dict[str, Any], session: Session) -> str:
    from torchstone.report.formula_cost_text import formula_cost_text
    from torchstone.report.text import coloured, plain

    paint = coloured if session.uses_color else plain
    return formula_cost_text(result, depth=given["depth"], text=given["text"], fold=not given["no_fold"], paint=paint)
