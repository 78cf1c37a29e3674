"""torchstone cost MODEL: FLOPs, bytes, peak memory, predicted time; at one size, over a range, or by formula."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option, options_as, provider_options
from torchstone.cli.progress import TerminalProgress
from torchstone.cli.terminal import warn
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError
from torchstone.record.base import Record

if TYPE_CHECKING:
    from torchstone.formula.agent.providers import Provider
    from torchstone.record.cost import Formats
    from torchstone.record.formula import FormulaCost
    from torchstone.workflows.cost import CostOutcome, CostRequest, Logits, Optimizer
    from torchstone.workflows.cost_sweep import CostSweepOutcome

_COUNTS = {"flops": 2, "macs": 1}  # what one multiply-add counts as
_OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


class CostOptions(Record, frozen=True, kw_only=True):
    """The options of `torchstone cost` beside those that name the model."""

    count: str
    causal: str
    weights: str | None
    kv_cache: str | None
    activations: str | None
    by: str
    no_trace: bool
    agent: bool
    provider: str
    answers: Path | None
    depth: int
    filter_text: str
    no_fold: bool
    top: int
    prices: Path | None
    hardware: str | None
    plan: Path | None
    python: str | None
    devices: int | None
    optimizer: "Optimizer | None"
    logits: "Logits | None"
    sweep: str | None
    compare_with: str | None
    strict: bool
    csv_file: Path | None
    folder: Path | None
    as_json: bool


@click.command()
@model_options
@click.option(
    "--count",
    type=click.Choice(list(_COUNTS)),
    default="flops",
    show_default=True,
    help="Count a multiply-add as two FLOPs or as one MAC.",
)
@click.option(
    "--causal",
    type=click.Choice(["full", "half"]),
    default="full",
    show_default=True,
    help="Count causal attention in full, or only the half that is not masked.",
)
@click.option(
    "--weights",
    metavar="FORMAT",
    help="Price weight matrices in this number format: bf16, fp8, mxfp4, int4_g128, bfloat8_b, ...",
)
@click.option("--kv", "kv_cache", metavar="FORMAT", help="Price the KV cache in this number format.")
@click.option("--activations", metavar="FORMAT", help="Price activations in this number format.")
@click.option(
    "--by",
    type=click.Choice(["module", "op", "class", "depth", "line", "formula"]),
    default="module",
    show_default=True,
    help="Group the first table by this; line: by the lines of the model's code; formula: compare each module's "
    "formula with its traced cost.",
)
@click.option(
    "--no-trace",
    is_flag=True,
    help="With --by formula: answer from stored formulas alone, without running the model; needs no torch.",
)
@click.option(
    "--agent",
    is_flag=True,
    help="With --by formula: ask an agent for formulas that cannot be derived; correct answers are stored as pending.",
)
@provider_options
@click.option("--depth", type=click.IntRange(min=0), default=4, show_default=True, help="Maximum module depth to show.")
@click.option(
    "--filter", "filter_text", default="", metavar="TEXT", help="Show only modules whose path or class contains TEXT."
)
@click.option("--no-fold", is_flag=True, help="Show repeated layers one by one.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Number of ops to show.")
@click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.py",
    help="Python file that prices custom ops with @register_price; it is executed.",
)
@click.option(
    "--hardware",
    metavar="NAME|FILE.toml",
    help="Predict the time on this device with a roofline model; `torchstone hardware` lists devices.",
)
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="DIR|FILE",
    help="With --hardware: show the memory plan of `torchstone map MODEL --dir DIR` beside the estimate.",
)
@click.option(
    "--python",
    metavar="ENV",
    help="With --hardware n150 (or another board): make that plan now, in this environment with ttnn.",
)
@click.option(
    "--tp",
    "devices",
    type=click.IntRange(min=2, max=1_000_000),
    metavar="N",
    help="Tensor parallelism: split the matmuls over N devices and count the bytes they exchange.",
)
@click.option(
    "--optimizer",
    type=click.Choice(_OPTIMIZERS),
    help="Add the states and the step of an optimizer; requires --backward.",
)
@click.option(
    "--logits",
    type=click.Choice(["all", "last"]),
    help="Compute the logits of all tokens or of the last one only, if the model supports logits_to_keep.",
)
@click.option(
    "--sweep",
    metavar="NAME=A..B",
    help="Price several sizes, such as seq_len=128..4096 (doubling) or batch_size=1,8; "
    "also cache_len, image_size, layers.",
)
@click.option(
    "--compare-with",
    metavar="NAMES",
    help="Run other FLOP counters on the model and explain each difference: flop_counter, fvcore, ... or all.",
)
@click.option("--strict", is_flag=True, help="Exit with code 1 if an op has no price.")
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a CSV file with one line per module, or per size with --sweep.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write trace.json, cost.json and report.html to this folder; with --sweep, cost_sweep.json and report.html.",
)
@json_option
@common_options
@click.pass_obj
@options_as(CostOptions)
def command(session: Session, /, request: ModelRequest, options: CostOptions) -> int:
    """Show what MODEL costs: FLOPs, bytes moved and peak memory, by module and by op.

    MODEL is any model that `torchstone inspect` accepts, or the folder or trace.json of an earlier run: pricing a
    saved trace does not need torch. By default the model is captured on tensors without data: large models need no
    memory.

    Exit code 1 if the forward pass fails, or if an op has no price (with --strict). With --by formula, a formula that
    disagrees with the trace is not used: the module is shown as traced only, with the reason.
    """
    by_formula = options.by == "formula"
    _refuse_without_effect(options)
    if by_formula and request.options.needs_own_cache:
        kind = request.options.cache
        msg = f"formulas describe a cache that grows; drop --by formula or --cache {kind}"
        raise InputError(msg)
    if by_formula:
        _refuse_beside_formulas(options)
    if options.sweep is not None:
        return _sweep(_cost_request(request, options), options.sweep, options, session)
    if options.no_trace or (by_formula and _needs_formulas_alone(request)):
        return _from_formulas(request, options)
    if by_formula:
        return _by_formula(_cost_request(request, options), options, session)
    return _cost(_cost_request(request, options), options, session)


def _refuse_without_effect(options: CostOptions) -> None:
    """Raise InputError for options whose effect needs another one, or that another one leaves without effect."""
    by_formula = options.by == "formula"
    if options.agent and not by_formula:
        msg = "--agent requires --by formula; add it or drop --agent"
        raise InputError(msg)
    chosen = click.get_current_context().get_parameter_source("provider") is ParameterSource.COMMANDLINE
    for name, is_given in (("--provider", chosen), ("--answers", options.answers is not None)):
        if is_given and not options.agent:
            msg = f"{name} requires --by formula --agent; add them or drop {name}"
            raise InputError(msg)
    if options.no_trace and (not by_formula or options.agent):
        msg = "--no-trace requires --by formula and does not go with --agent; drop one of them"
        raise InputError(msg)
    if options.sweep is not None and options.by not in ("module", "formula"):
        msg = f"--by {options.by} groups the cost of one size, but --sweep runs several; drop one of them"
        raise InputError(msg)


def _refuse_beside_formulas(options: CostOptions) -> None:
    """Raise InputError for options that a cost by formula would leave without effect."""
    if options.sweep is not None:
        msg = "--by formula works on one size, but --sweep runs several; drop one of them"
        raise InputError(msg)
    given = {
        "--hardware": options.hardware,
        "--plan": options.plan,
        "--python": options.python,
        "--tp": options.devices,
        "--compare-with": options.compare_with,
        "--csv": options.csv_file,
        "--dir": options.folder,
        "--strict": options.strict or None,
    }
    wrong = next((name for name, value in given.items() if value is not None), None)
    if wrong is not None:
        msg = f"--by formula prints the cost of each module; drop it or {wrong}"
        raise InputError(msg)


def _cost_request(request: ModelRequest, options: CostOptions) -> "CostRequest":
    from torchstone.record.cost import Causal, Conventions
    from torchstone.workflows.cost import CostRequest, PricingOptions

    return CostRequest(
        model=replace(request, lines=options.by == "line"),
        pricing=PricingOptions(
            conventions=Conventions(
                multiply_add=_COUNTS[options.count], causal=Causal(options.causal), formats=_formats(options)
            ),
            hardware=options.hardware,
            devices=options.devices,
            optimizer=options.optimizer,
        ),
        logits=options.logits,
        prices=options.prices,
        compare_with=options.compare_with,
        plan=options.plan,
        python=options.python,
    )


def _formats(options: CostOptions) -> "Formats":
    from torchstone.cost.formats import parse_format
    from torchstone.record.cost import Formats

    weights, kv_cache, activations = (
        None if name is None else parse_format(name)
        for name in (options.weights, options.kv_cache, options.activations)
    )
    formats = Formats(weights=weights, kv_cache=kv_cache, activations=activations)
    if formats.is_as_captured:
        return formats
    if options.by == "formula":
        msg = "formulas have the dtype of the model as a parameter; drop --by formula to price other number formats"
        raise InputError(msg)
    return Formats(weights=weights, kv_cache=kv_cache, activations=activations, source="as asked for")


def _cost(request: "CostRequest", options: CostOptions, session: Session) -> int:
    from torchstone.record.codec import encode
    from torchstone.workflows.cost import cost_model, write_costs

    progress = TerminalProgress(session)
    outcome = cost_model(request, progress)
    click.echo(encode(outcome.table) if options.as_json else _text(outcome, options, session))
    if options.csv_file is not None:
        from torchstone.report.cost_text import module_csv

        _write_csv(options.csv_file, module_csv(outcome.table.modules))
    if options.folder is not None:
        write_costs(options.folder, outcome, progress)
    return _exit_code(outcome.table.unpriced, failed=outcome.trace.failure is not None, strict=options.strict)


def _sweep(request: "CostRequest", sweep: str, options: CostOptions, session: Session) -> int:
    from torchstone.record.codec import encode
    from torchstone.workflows.cost_sweep import SWEEP_FILE, CostSweepRequest, sweep_cost
    from torchstone.workflows.result_folder import write_result

    progress = TerminalProgress(session)
    outcome = sweep_cost(CostSweepRequest(cost=request, sweep=sweep), progress)
    click.echo(encode(outcome.record) if options.as_json else _sweep_text(outcome, session))
    if options.csv_file is not None:
        from torchstone.report.cost_text import sweep_csv

        _write_csv(options.csv_file, sweep_csv(outcome.parameter, outcome.points, outcome.failures))
    if options.folder is not None:
        write_result(options.folder / SWEEP_FILE, outcome.record, progress)
    return _exit_code(outcome.unpriced, failed=outcome.failed, strict=options.strict)


def _needs_formulas_alone(request: ModelRequest) -> bool:
    """Whether a model of the zoo has no trace and none can be made here, so that its formula is the only answer."""
    from importlib.util import find_spec

    from torchstone.models.zoo.catalogue import find_entry
    from torchstone.workflows.model_source import kept_trace

    if find_spec("torch") is not None or Path(request.model).exists() or find_entry(request.model) is None:
        return False
    return kept_trace(request) is None


def _from_formulas(request: ModelRequest, options: CostOptions) -> int:
    from torchstone.report.formula_cost_text import estimate_text
    from torchstone.workflows.cost_from_formulas import cost_from_formulas

    if options.optimizer is not None:
        msg = "the step of an optimizer is counted over the parameters of a trace; drop --no-trace or --optimizer"
        raise InputError(msg)
    estimate = cost_from_formulas(request.model, request.options, backward=request.backward)
    costs = {"FLOPs": estimate.flops, "read": estimate.bytes_read, "written": estimate.bytes_written}
    name = estimate.entry.module_path
    click.echo(
        estimate.document if options.as_json else estimate_text(estimate.model, name, estimate.parameters, costs)
    )
    return EXIT_FINE


def _agent_of(options: CostOptions) -> "Provider":
    from torchstone.workflows.formula_agent import choose_provider

    return choose_provider(options.provider, options.answers, None)


def _by_formula(request: "CostRequest", options: CostOptions, session: Session) -> int:
    from torchstone.record.codec import encode
    from torchstone.workflows.cost_by_formula import FormulaCostRequest, cost_by_formula

    agent = _agent_of(options) if options.agent else None
    outcome = cost_by_formula(FormulaCostRequest(cost=request, agent=agent), TerminalProgress(session))
    warn(outcome.warnings)  # a formula that cannot be read is not a hint
    result = outcome.result
    click.echo(encode(result.document) if options.as_json else _formula_text(result, options, session))
    return EXIT_FINDINGS if result.disagreeing or outcome.trace.failure is not None else EXIT_FINE


def _text(outcome: "CostOutcome", options: CostOptions, session: Session) -> str:
    from torchstone.cost.formats import with_formats
    from torchstone.report.cost_text import CostTextOptions, comparison_text, cost_text, formats_text, prediction_text
    from torchstone.report.text import coloured, plain

    shown = CostTextOptions(
        depth=options.depth, text=options.filter_text, fold=not options.no_fold, top=options.top, by=options.by
    )
    paint = coloured if session.uses_color else plain
    table = outcome.table
    trace = with_formats(outcome.trace, table.conventions.formats)  # its signatures are those that were priced
    parts = (
        f"{table.model}: {formats_text(table)}",
        cost_text(table, trace, shown, paint),
        prediction_text(table, trace, options.top, paint),
        comparison_text(table),
    )
    return "\n\n".join(part for part in parts if part)


def _sweep_text(outcome: "CostSweepOutcome", session: Session) -> str:
    from torchstone.report.cost_text import sweep_text
    from torchstone.report.text import coloured, plain

    paint = coloured if session.uses_color else plain
    return sweep_text(outcome.parameter, outcome.points, paint, outcome.failures)


def _formula_text(result: "FormulaCost", options: CostOptions, session: Session) -> str:
    from torchstone.report.formula_cost_text import formula_cost_text
    from torchstone.report.text import coloured, plain

    paint = coloured if session.uses_color else plain
    return formula_cost_text(
        result, depth=options.depth, text=options.filter_text, fold=not options.no_fold, paint=paint
    )


def _write_csv(path: Path, text: str) -> None:
    from torchstone.record.codec import write_atomically

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}; choose another --csv"
        raise InputError(msg) from error


def _exit_code(unpriced: Collection[str], *, failed: bool, strict: bool) -> int:
    """1 if the forward pass failed, and with --strict if an op has no price."""
    if strict and unpriced:
        names = ", ".join(sorted(unpriced))
        click.echo(f"torchstone: --strict: no price for {names}; price them with --prices", err=True)
        return EXIT_FINDINGS
    return EXIT_FINDINGS if failed else EXIT_FINE
