"""torchstone formula: the cost of a module class as a formula."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.options import F, Session, common_options, json_option, provider_options
from torchstone.cli.progress import TerminalProgress
from torchstone.cli.terminal import warn
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE, InputError
from torchstone.units import many, read_bytes, read_count

if TYPE_CHECKING:
    from torchstone.formula.database.files import Formulas
    from torchstone.record.formula import TradeOff
    from torchstone.report.text import Paint
    from torchstone.workflows.formula import ShowRequest

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)

quantities_option = click.option(
    "--of",
    "quantities",
    multiple=True,
    type=click.Choice(["flops", "reads", "writes", "intermediates", "weights"]),
    help="Only this quantity; can be repeated.",
)


def formula_arguments(function: F) -> F:
    """Add NAME and any number of PARAMETER=VALUE."""
    parameters = click.argument("parameters", nargs=-1, metavar="[PARAMETER=VALUE]...")
    return click.argument("name")(parameters(function))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show the cost of a module class as a formula of its parameters.

    `list` and `show` print known formulas, `eval` computes one, `solve` finds the largest batch that fits, `generate`
    writes all formulas as a Python package. NAME is a class path, such as torch.nn.Linear, or the class name alone
    where it is unambiguous. None of these needs torch; `derive`, `validate` and `agent` do.
    """


@command.command("list", short_help="List the classes with a known formula.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only classes whose path contains TEXT.")
@click.option(
    "--status",
    type=click.Choice(["validated", "pending", "unchecked", "failed"]),
    help="Only entries with this status.",
)
@click.option("--check", is_flag=True, help="Check every entry for mistakes; exit with 1 if there are any.")
@json_option
@common_options
@click.pass_obj
def list_command(session: Session, text: str, status: str | None, *, check: bool, as_json: bool) -> int:
    """List the module classes with a known formula: shipped ones and your own."""
    from torchstone.record.formula import Status
    from torchstone.workflows.formula import ListRequest, list_formulas

    request = ListRequest(text=text, status=None if status is None else Status(status), check=check)
    result = list_formulas(request, load_formulas())
    if as_json:
        from torchstone.report.formula_document import list_document

        click.echo(list_document(result.entries, result.own, result.mistakes))
    else:
        from torchstone.report.formula_text import list_text

        click.echo(list_text(result.entries, result.own))
        TerminalProgress(session).note(f"{len(result.entries)} of {many(result.total, 'formula')}.")
    for mistake in result.mistakes:
        click.echo(f"torchstone: {mistake}", err=True)
    return EXIT_FINDINGS if result.mistakes else EXIT_FINE


@command.command("show", short_help="Show a formula, its domain and its evidence.")
@formula_arguments
@quantities_option
@click.option("--expand", "form", flag_value="expanded", help="Inline the calls of other modules and multiply out.")
@click.option("--factor", "form", flag_value="factored", help="Inline the calls of other modules and factor.")
@click.option("--latex", is_flag=True, help="Print the formulas as LaTeX.")
@click.option("--growth", is_flag=True, help="Show how each quantity grows with each parameter.")
@click.option("--dominant", metavar="PARAMETER", help="Show the largest part for each range of PARAMETER.")
@json_option
@common_options
@click.pass_obj
def show_command(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    /,
    *,
    name: str,
    parameters: tuple[str, ...],
    quantities: tuple[str, ...],
    form: str | None,
    growth: bool,
    dominant: str | None,
    latex: bool,
    as_json: bool,
) -> None:
    """Show the formulas of NAME, the conditions under which they hold, and their evidence.

    Values given as PARAMETER=VALUE are substituted; other parameters stay symbolic.
    """
    from torchstone.formula.algebra.view import Form
    from torchstone.record.formula import Quantity
    from torchstone.workflows.formula import ShowRequest, read_parameters

    request = ShowRequest(
        name=name,
        parameters=read_parameters(parameters),
        quantities=tuple(map(Quantity, quantities)),
        form=Form(form or "written"),
    )
    if growth:
        click.echo(_growth(request, _paint(session), as_json=as_json))
    elif dominant:
        click.echo(_dominant(request, dominant, _paint(session), as_json=as_json))
    else:
        click.echo(_formulas(request, _paint(session), as_json=as_json, latex=latex))


def _growth(request: "ShowRequest", paint: "Paint", *, as_json: bool) -> str:
    from torchstone.workflows.formula import show_growth

    found = show_growth(request, load_formulas())
    if as_json:
        from torchstone.report.formula_document import growth_document

        return growth_document(request.name, found)
    from torchstone.report.formula_text import growth_text

    return "\n\n".join(growth_text(quantity, growths, paint) for quantity, growths in found.items())


def _dominant(request: "ShowRequest", parameter: str, paint: "Paint", *, as_json: bool) -> str:
    from torchstone.workflows.formula import show_dominant

    found = show_dominant(request, parameter, load_formulas())
    if as_json:
        from torchstone.report.formula_document import dominance_document

        return dominance_document(request.name, parameter, {one.quantity: (one.terms, one.powers) for one in found})
    from torchstone.report.formula_text import dominance_text

    return "\n\n".join(
        dominance_text(one.quantity, parameter, dominant_ranges, paint)
        for one in found
        for dominant_ranges in (one.terms, one.powers)
    )


def _formulas(request: "ShowRequest", paint: "Paint", *, as_json: bool, latex: bool) -> str:
    from torchstone.report.formula_text import entry_text, latex_text
    from torchstone.workflows.formula import show_formula

    result = show_formula(request, load_formulas())
    if as_json:
        from torchstone.report.formula_document import entry_document

        return entry_document(result.entry, result.formulas)
    return latex_text(result.formulas) if latex else entry_text(result.entry, result.formulas, paint)


@command.command("eval", short_help="Compute FLOPs and bytes for given parameters.")
@formula_arguments
@quantities_option
@click.option("--explain", is_flag=True, help="Show how each number is computed, module by module.")
@json_option
@common_options
@click.pass_obj
def eval_command(
    session: Session,
    /,
    *,
    name: str,
    parameters: tuple[str, ...],
    quantities: tuple[str, ...],
    explain: bool,
    as_json: bool,
) -> None:
    """Compute FLOPs and bytes of NAME for given parameters.

    A value is a number or arithmetic, such as S=4*1024. Parameters with a default are optional; `torchstone formula
    show NAME` lists them.
    """
    from torchstone.record.formula import Quantity, Status
    from torchstone.workflows.formula import EvalRequest, evaluate_formula, read_values

    request = EvalRequest(
        name=name,
        parameters=read_values(parameters),
        quantities=tuple(map(Quantity, quantities)),
        explain=explain and not as_json,
    )
    result = evaluate_formula(request, load_formulas())
    if as_json:
        from torchstone.report.formula_document import values_document

        click.echo(values_document(result.entry.module_path, result.parameters, result.values))
    elif explain:
        click.echo("\n\n".join(f"{quantity}\n{tree}" for quantity, tree in result.explanations.items()))
    else:
        from torchstone.report.formula_text import values_text

        click.echo(values_text(result.values))
    built_by = result.entry.built_by
    if built_by is not None and built_by.model:
        note = f"torchstone: this formula holds for the configuration of {built_by.model} alone"
        TerminalProgress(session).note(f"{note}; `torchstone formula show` lists its settings")
    status = result.entry.validation.status
    if status is not Status.VALIDATED:
        TerminalProgress(session).note(f"torchstone: the status of this formula is {status}")


@command.command("solve", short_help="Find the largest batch, or other parameter, that fits.")
@formula_arguments
@click.option("--for", "parameter", default="B", show_default=True, help="The parameter to find.")
@click.option("--memory", metavar="SIZE", help="Limit for weights and live activations, such as 80GiB.")
@click.option("--traffic", metavar="SIZE", help="Limit for bytes read and written.")
@click.option("--flops", metavar="COUNT", help="Limit for FLOPs, such as 2e15 or 2P.")
@click.option(
    "--hardware",
    metavar="DEVICE",
    help="Limit for memory by this device, with a chart of memory and time; `torchstone hardware` lists devices.",
)
@click.option(
    "--tp",
    "devices",
    type=click.IntRange(min=1, max=1_000_000),
    default=1,
    show_default=True,
    help="With --hardware: devices that share the weights; --for TP finds the fewest.",
)
@click.option("--chart", type=_FILE, help="With --hardware: draw memory and time to this SVG file.")
@json_option
@common_options
@click.pass_obj
def solve_command(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    /,
    *,
    name: str,
    parameters: tuple[str, ...],
    parameter: str,
    memory: str | None,
    traffic: str | None,
    flops: str | None,
    hardware: str | None,
    devices: int,
    chart: Path | None,
    as_json: bool,
) -> int:
    """Find the largest value of a parameter of NAME that fits a limit.

    Give the other parameters as PARAMETER=VALUE, unless they have a default. The exit code is 1 when nothing fits.
    """
    from torchstone.workflows.formula import Limit, SolveRequest, read_parameters, solve_formula

    if hardware is not None:
        if traffic is not None or flops is not None:
            msg = "--hardware limits the memory; drop --traffic and --flops"
            raise InputError(msg)
        limit = _read_limit("--memory", memory, read_bytes, "80GiB or 500MB")
        found = _trade_off((name, parameters, parameter), (hardware, devices, limit))
        return _print_trade_off(found, chart, as_json=as_json)
    if chart is not None:
        msg = "--chart draws a formula on a device; add --hardware"
        raise InputError(msg)
    request = SolveRequest(
        name=name,
        parameters=read_parameters(parameters),
        parameter=parameter,
        memory_bytes=_read_limit("--memory", memory, read_bytes, "80GiB or 500MB"),
        traffic_bytes=_read_limit("--traffic", traffic, read_bytes, "80GiB or 500MB"),
        flops=_read_limit("--flops", flops, read_count, "2e15 or 2P"),
    )
    result = solve_formula(request, load_formulas())
    if as_json:
        from torchstone.report.formula_document import solution_document

        click.echo(solution_document(result.entry.module_path, parameter, result.limit, result.solution, result.costs))
    else:
        from torchstone.report.formula_text import solution_text

        in_bytes = result.kind is not Limit.FLOPS
        click.echo(solution_text(parameter, result.limit, result.solution, result.costs, in_bytes=in_bytes))
    if result.solution is not None and not result.solution.proven:
        TerminalProgress(session).note(
            f"torchstone: the cost is not proven to grow with {parameter}: a larger one may fit too"
        )
    return EXIT_FINDINGS if result.solution is None else EXIT_FINE


def _trade_off(subject: tuple[str, tuple[str, ...], str], device: tuple[str, int, int | None]) -> "TradeOff":
    from torchstone.cost.roofline import find_hardware
    from torchstone.workflows.formula import read_parameters
    from torchstone.workflows.formula_tradeoff import TradeOffRequest, trade_off

    (name, parameters, unknown), (hardware, devices, memory_bytes) = subject, device
    request = TradeOffRequest(
        name=name,
        parameters=read_parameters(parameters),
        parameter=unknown,
        hardware=find_hardware(hardware),
        devices=devices,
        memory_bytes=memory_bytes,
    )
    return trade_off(request, load_formulas())


def _print_trade_off(found: "TradeOff", chart: Path | None, *, as_json: bool) -> int:
    from torchstone.report.formula_document import trade_off_document
    from torchstone.report.formula_text import trade_off_text

    click.echo(trade_off_document(found) if as_json else trade_off_text(found))
    if chart is not None:
        from torchstone.report.formula_chart import write_chart

        write_chart(chart, found)
    return EXIT_FINDINGS if found.fits is None else EXIT_FINE


def _read_limit(option: str, text: str | None, read: Callable[[str], int | None], example: str) -> int | None:
    limit = None if text is None else read(text)
    if text is not None and limit is None:
        msg = f"{option} {text!r} cannot be read; write it as {example}"
        raise InputError(msg)
    return limit


@command.command("generate", short_help="Write all formulas as a Python package without dependencies.")
@click.option(
    "--out", "folder", required=True, type=_FOLDER, help="Write the package generated_modules to this folder."
)
@click.option(
    "--filter", "text", default="", metavar="TEXT", help="Only classes whose path contains TEXT, and those they call."
)
@common_options
@click.pass_obj
def generate_command(session: Session, folder: Path, text: str) -> None:
    """Write the formulas as a Python package that needs nothing but Python.

    `from generated_modules import compute_flops` then gives the same numbers as torchstone. An earlier generated
    package in the folder is replaced as a whole.
    """
    from torchstone.workflows.formula import generate_package

    result = generate_package(folder, text, load_formulas())
    click.echo(str(result.package))
    progress = TerminalProgress(session)
    progress.note(f"wrote {many(result.num_classes, 'class', 'classes')}; use them from {folder} with")
    progress.note("  from generated_modules import compute_flops")


@command.command("derive", short_help="Derive the formula of a class from its captured ops.")
@click.argument("class_path", metavar="CLASS", required=False)
@click.option("--all-in", "model", metavar="MODEL", help="Derive every class of this model instead of one CLASS.")
@click.option(
    "--recipe",
    metavar="FILE.py::FUNCTION",
    help="For a class of your own: a function from sizes to the module and its inputs.",
)
@click.option("--sizes", metavar="NAME,NAME", help="Parameters of FUNCTION, such as B,S,hidden_size.")
@click.option("--attention", type=click.Choice(["eager"]), help="Derive the code path with eager attention.")
@click.option("--no-cache", is_flag=True, help="Derive the code path without a KV cache.")
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    default="prefill",
    show_default=True,
    help="The whole prompt, or one new token after a filled cache.",
)
@click.option("--no-save", is_flag=True, help="Show the formulas without storing them.")
@click.option("--out", type=_FILE, metavar="FILE.json", help="Store the entries in this database instead of your own.")
@json_option
@common_options
@click.pass_obj
def derive_command(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    /,
    class_path: str | None,
    *,
    model: str | None,
    recipe: str | None,
    sizes: str | None,
    attention: str | None,
    no_cache: bool,
    phase: str,
    no_save: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Derive the cost of CLASS as a formula from the ops that it runs at several sizes.

    CLASS is a path, such as torch.nn.Linear or transformers.models.llama.modeling_llama.LlamaAttention. It is built and
    captured with fake tensors, and every tensor size is fitted exactly, on each side of every comparison of a size. The
    formula is stored only if it gives the measured FLOPs and bytes at every point, including ordinary sizes that are
    drawn after it is fixed. Otherwise it is refused with the reason, and the exit code is 1.
    """
    from torchstone.workflows.formula_derive import DeriveRequest, derive_formulas, save_derived

    request = DeriveRequest(
        class_path=class_path or "",
        model=model or "",
        recipe=recipe or "",
        sizes=tuple(name.strip() for name in (sizes or "").split(",") if name.strip()),
        attention=attention or "",
        use_cache=not no_cache,
        decode=phase == "decode",
    )
    progress = TerminalProgress(session)
    result = derive_formulas(request, progress)
    if as_json:
        from torchstone.report.formula_document import derived_document

        click.echo(derived_document(result.entries, result.refused))
    else:
        from torchstone.report.formula_text import derived_text

        click.echo(derived_text(result.entries, result.refused))
    if result.entries and not no_save:
        saved = save_derived(result, out)
        _warn_of_damaged(saved.path, saved.damaged)
        progress.note(f"stored {many(saved.num_entries, 'entry', 'entries')} in {saved.path}")
    return EXIT_FINE if result.complete else EXIT_FINDINGS


@command.command("validate", short_help="Compare formulas with fresh captures.")
@click.argument("name", required=False)
@click.option(
    "--points", type=click.IntRange(min=1), default=4, show_default=True, help="Random settings of each model."
)
@click.option("--quick", is_flag=True, help="The usual code paths only, two settings of each model.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random settings.")
@json_option
@common_options
@click.pass_obj
def validate_command(
    session: Session, /, name: str | None, points: int, *, quick: bool, seed: int, as_json: bool
) -> int:
    """Compare the formula of NAME, or every known formula, with fresh captures at random settings.

    FLOPs, bytes read and bytes written must be equal, not close. The exit code is 1 when one differs; the term that
    differs is named. Entries of your own classes are measured by the recipe that is stored with them, which is
    executed; those without one are listed as not compared.
    """
    from torchstone.workflows.formula_validate import ValidateRequest, validate_formulas

    request = ValidateRequest(name=name or "", points=points, quick=quick, seed=seed)
    result = validate_formulas(request, load_formulas(), TerminalProgress(session))
    found = (result.agree, result.differences, result.outside, result.not_built, result.refuted)
    if as_json:
        from torchstone.report.formula_document import validation_document

        click.echo(validation_document(*found))
    else:
        from torchstone.report.formula_text import validation_text

        click.echo(validation_text(*found))
    return EXIT_FINDINGS if result.differences or result.refuted else EXIT_FINE


@command.command("diff", short_help="Compare the formulas of two databases.")
@click.argument("old", type=_FILE, metavar="OLD.json")
@click.argument("new", type=_FILE, metavar="[NEW.json]", required=False)
@json_option
@common_options
@click.pass_obj
def diff_command(_session: Session, /, old: Path, new: Path | None, *, as_json: bool) -> int:
    """Show which formulas differ between two databases, term by term.

    Without NEW.json, OLD.json is compared with the known formulas: derive with one version of a library, keep the file,
    derive with another version, and see what changed. The exit code is 1 when a formula differs.
    """
    from torchstone.workflows.formula import diff_formulas

    result = diff_formulas(old, new)
    if as_json:
        from torchstone.report.formula_document import changes_document

        click.echo(changes_document(result.changes))
    else:
        from torchstone.report.formula_text import changes_text

        click.echo(changes_text(result.changes))
    return EXIT_FINDINGS if result.differs else EXIT_FINE


@command.command("agent", short_help="Let an agent write a formula that cannot be derived.")
@click.argument("class_path", metavar="CLASS")
@click.option(
    "--recipe",
    required=True,
    metavar="FILE.py::FUNCTION",
    help="A function from parameters to the module and its inputs.",
)
@click.option(
    "--at",
    "settings",
    multiple=True,
    required=True,
    metavar="'B=2 S=16 ...'",
    help="A setting of the parameters to measure at; repeat it with different sizes.",
)
@provider_options
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="Maximum number of answers.")
@click.option("--because", default="", metavar="TEXT", help="Skip derivation and give the agent this reason instead.")
@json_option
@common_options
@click.pass_obj
def agent_command(  # noqa: PLR0913 - one parameter for each option
    session: Session,
    /,
    *,
    class_path: str,
    recipe: str,
    settings: tuple[str, ...],
    provider: str,
    answers: Path | None,
    rounds: int,
    because: str,
    as_json: bool,
) -> int:
    """Let an agent write the formulas of CLASS, and store them if they are right at every measured point.

    The answer is data in the language of formulas, never code. It must also be right at hidden points, which no
    question shows. Its errors are sent back to the agent; after the last round without a correct answer, nothing is
    stored. An accepted entry stays pending until you run `torchstone formula approve CLASS`.
    """
    from torchstone.workflows.formula_agent import AgentRequest, ask_agent, read_setting

    request = AgentRequest(
        class_path=class_path,
        recipe=recipe,
        settings=[read_setting(one) for one in settings],
        provider=provider,
        answers=answers,
        rounds=rounds,
        because=because,
    )
    result = ask_agent(request, load_formulas(), TerminalProgress(session))
    entry, attempts = result.outcome.entry, result.outcome.attempts
    if result.path is not None and result.damaged is not None:
        _warn_of_damaged(result.path, (result.damaged,))
    if as_json:
        from torchstone.report.formula_document import agent_document

        click.echo(agent_document(class_path, entry, [attempt.problem for attempt in attempts]))
    elif entry is None:
        click.echo(f"nothing was stored for {class_path}: {attempts[-1].problem}")
    else:
        click.echo(f"stored {class_path} as pending; review it with `torchstone formula show {class_path}`")
    return EXIT_FINE if result.accepted else EXIT_FINDINGS


@command.command("approve", short_help="Approve or delete a pending entry.")
@click.argument("name")
@click.option("--by", "person", default="", metavar="NAME", help="Name of the approver; default: your user name.")
@click.option("--reject", is_flag=True, help="Delete the entry from your formulas instead.")
@common_options
@click.pass_obj
def approve_command(session: Session, name: str, person: str, *, reject: bool) -> None:
    """Approve the pending entry NAME of your own formulas, so that it counts as validated.

    An entry with a recipe is measured again at hidden points first; one that is wrong is not approved.
    """
    from torchstone.formula.database.templates import name_of
    from torchstone.workflows.formula import approve_entry, reject_entry

    if reject:
        click.echo(f"removed {name_of(reject_entry(name))}")
        return
    entry = approve_entry(name, person)
    click.echo(f"approved {name_of(entry)}")
    TerminalProgress(session).note(f"status: {entry.validation.status} by {entry.validation.validator}")


def load_formulas() -> "Formulas":
    """The formulas at hand; problems with their files are printed on stderr, in quiet sessions too."""
    from torchstone.formula.database.compute import available_formulas

    formulas = available_formulas()
    warn(formulas.problems)
    return formulas


def _warn_of_damaged(path: Path, damaged: tuple[Path, ...]) -> None:
    warn([f"{path} was damaged; it is kept as {aside}" for aside in damaged])


def _paint(session: Session) -> "Paint":
    from torchstone.report.text import coloured, plain

    return coloured if session.uses_color else plain
