"""torchstone reference: golden data and reference artifacts for a bring-up, and the comparison of a port with them."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from torchstone.cli.ci_output import CiOptions, ci_options, write_for_ci
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import DefaultCommandGroup, Session, common_options, json_option, options_as, profile_option
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.workflows.reference import (
    CHECKLIST_PAGE,
    KV_LENGTHS,
    CompareRules,
    ReferenceRequest,
    compare_with_port,
    verify_reference,
    write_reference,
)

if TYPE_CHECKING:
    from torchstone.record.reference import Comparison
    from torchstone.workflows.reference import ReferenceOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeOptions:
    """The options of `reference make`, as they were given."""

    folder: Path
    intermediates: str
    with_weights: bool
    kv_lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """How a comparison is printed."""

    only_wrong: bool
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions(ShowOptions):
    """The options of `reference compare`."""

    pcc: float | None
    profile: str
    strict: bool
    partial: bool
    names: Path | None
    save: bool


@click.group(cls=DefaultCommandGroup, default="make", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Generate golden data and reference artifacts for a bring-up, and compare a port with them.

    `torchstone reference MODEL --dir D` (short for `reference make`) writes golden data, graph, summary, operators,
    shapes and parameters, and checks each of them. `verify D` builds the model again and replays the golden data.
    `compare D CANDIDATE` compares the outputs of a port with the golden data.
    """


def _token_counts(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        lengths = (0,)
    if min(lengths) < 1:
        msg = f"--kv-lengths {text!r} is not a list of token counts; write it as 2048,8192"
        raise click.UsageError(msg)
    return lengths


@command.command(name="make", short_help="Write golden data and reference artifacts of a model.")
@model_options
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the reference.",
)
@click.option(
    "--intermediates",
    default="",
    metavar="unique|all|PATTERN",
    help="Also keep inputs and outputs of modules: one of each kind, all, or those whose path matches (*.mlp).",
)
@click.option("--with-weights", is_flag=True, help="Also keep the weights; by default source and seed rebuild them.")
@click.option(
    "--kv-lengths",
    default=",".join(map(str, KV_LENGTHS)),
    show_default=True,
    metavar="TOKENS,...",
    callback=_token_counts,
    help="Sequence lengths for which the summary states the size of the KV cache.",
)
@options_as(MakeOptions)
@json_option
@common_options
@click.pass_obj
def make_command(session: Session, /, request: ModelRequest, options: MakeOptions, *, as_json: bool) -> int:
    """Write golden data, graph, summary, operators, shapes and parameters of MODEL to a folder.

    MODEL is any model that `torchstone inspect` accepts and that has values: a file.py::function, a model of the zoo
    with seeded random weights, tiny:TYPE, a local folder from Hugging Face. It runs about a dozen times on the CPU.

    CHECKLIST.md has one box for each of the six deliverables. A box is ticked only after checks: the files are read
    back, the model runs again, the results are equal. Exit code 1 when a box is not ticked.
    """
    asked = ReferenceRequest(
        model=request,
        folder=options.folder,
        intermediates=options.intermediates,
        with_weights=options.with_weights,
        kv_lengths=options.kv_lengths,
    )
    outcome = write_reference(asked, TerminalProgress(session))
    _show_outcome(outcome, session, as_json=as_json)
    return EXIT_FINE if outcome.complete else EXIT_FINDINGS


def _show_outcome(outcome: "ReferenceOutcome", session: Session, *, as_json: bool) -> None:
    from torchstone.record.codec import encode
    from torchstone.report.reference_text import checklist_text
    from torchstone.report.text import coloured, failure_text, plain

    failed = outcome.golden is None
    if as_json:
        click.echo(encode(outcome.checklist))
    elif failed:
        click.echo(failure_text(outcome.trace))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(checklist_text(outcome.checklist, paint), color=session.uses_color)
    if failed:
        click.echo("no reference was made: the forward pass fails", err=True)
    elif not session.quiet:
        folder = outcome.folder
        click.echo(
            f"wrote {folder / CHECKLIST_PAGE} and the files it lists; report: {folder / 'report.html'}", err=True
        )
        click.echo(f"next: torchstone reference compare {quote(str(folder))} YOUR_OUTPUTS.safetensors", err=True)


_pcc_option = click.option(
    "--pcc", type=click.FloatRange(-1, 1), help="Minimum PCC to pass; decides in place of the noise."
)
_only_wrong_option = click.option("--only-wrong", is_flag=True, help="List only tensors that are wrong.")


@command.command(name="verify", short_help="Build the model again and replay the golden data.")
@click.argument("folder", metavar="D", type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", metavar="MODEL", help="New location of the model, if it has moved.")
@click.option("--inputs", metavar="FILE.py::FN", help="New location of the inputs function, if it has moved.")
@_pcc_option
@_only_wrong_option
@json_option
@options_as(ShowOptions)
@common_options
@click.pass_obj
def verify_command(
    session: Session, /, options: ShowOptions, *, folder: Path, model: str | None, inputs: str | None, pcc: float | None
) -> int:
    """Build the model of the reference in D again, run it on the golden inputs and compare the outputs.

    The weights come from weights.safetensors if the reference was made with --with-weights, otherwise from the model's
    own source and the seed. Exit code 1 when a tensor is wrong.
    """
    found = verify_reference(folder, model=model, inputs=inputs, pcc=pcc, progress=TerminalProgress(session))
    return show_comparison(found, session, options)


@command.command(name="compare", short_help="Compare the outputs of a port with the golden data.")
@click.argument("folder", metavar="D", type=click.Path(path_type=Path, file_okay=False))
@click.argument("candidate", metavar="CANDIDATE", type=click.Path(path_type=Path))
@_pcc_option
@profile_option
@click.option("--strict", is_flag=True, help="Exit with 1 also when a tensor is suspicious.")
@click.option(
    "--map",
    "names",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML or JSON file with golden names for names of the port; * stands for any part of a name.",
)
@click.option(
    "--partial",
    "--allow-missing",
    "partial",
    is_flag=True,
    help="Accept a CANDIDATE that lacks outputs, or most module outputs; what it has decides.",
)
@_only_wrong_option
@click.option("--save", is_flag=True, help="Write D/comparison.json and render the report again.")
@json_option
@options_as(CompareOptions)
@ci_options
@common_options
@click.pass_obj
def compare_command(
    session: Session, /, options: CompareOptions, *, folder: Path, candidate: Path, ci: CiOptions
) -> int:
    """Compare the tensors in CANDIDATE with the golden data in D, in order of execution.

    CANDIDATE is a .safetensors, .npz, .npy, .pt or .tensorbin file, or a folder of them. Tensors are matched by name
    (`outputs/logits`, `modules/encoder.layer.0/outputs`, or short: `logits`, `encoder.layer.0`), by --map, and by value
    and order. The layout of the port is undone first: NHWC, [1, 1, N*H*W, C], padding to tiles, fused q, k, v, ...

    Exit code 1 when a tensor is wrong, or when an output or most module outputs are not in CANDIDATE (see --partial).
    The output names the first wrong module and what to look at next.
    """
    from torchstone.report.checks_ci import comparison_for_ci

    found = compare_with_port(
        folder,
        candidate,
        rules=CompareRules(pcc=options.pcc, profile=options.profile, partial=options.partial, names=options.names),
        write=options.save,
        progress=TerminalProgress(session),
    )
    code = show_comparison(found, session, options)
    failed = code != EXIT_FINE or bool(options.strict and found.suspicious)
    write_for_ci(ci, lambda: comparison_for_ci(found, failed=failed))
    return EXIT_FINDINGS if failed else EXIT_FINE


def show_comparison(found: "Comparison", session: Session, options: ShowOptions) -> int:
    """Print a comparison and return its exit code."""
    from torchstone.report.json_document import comparison_document
    from torchstone.report.reference_text import comparison_text
    from torchstone.report.text import coloured, plain

    if options.as_json:
        click.echo(comparison_document(found))
    else:
        paint = coloured if session.uses_color else plain
        click.echo(comparison_text(found, only_wrong=options.only_wrong, paint=paint), color=session.uses_color)
    return EXIT_FINE if found.passed else EXIT_FINDINGS
