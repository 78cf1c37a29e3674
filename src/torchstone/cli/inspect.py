"""torchstone inspect MODEL: modules, operators, shapes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option, options_as
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE
from torchstone.record.base import Record

if TYPE_CHECKING:
    from torchstone.record.trace import Trace
    from torchstone.report.inspect_text import TreeOptions


class InspectOptions(Record, frozen=True, kw_only=True):
    """The options of `torchstone inspect` beside those that name the model."""

    depth: int | None
    filter_text: str
    columns: str
    no_fold: bool
    operators: bool
    unique: bool
    folder: Path | None
    as_json: bool


@click.command()
@model_options
@click.option("--depth", type=click.IntRange(min=0), help="Maximum module depth to show.")
@click.option(
    "--filter", "filter_text", default="", metavar="TEXT", help="Only modules whose path or class contains TEXT."
)
@click.option(
    "--columns",
    default="class,params,inputs,outputs,calls",
    show_default=True,
    metavar="NAMES",
    help="Columns of the module tree, separated by commas; bytes is available too.",
)
@click.option("--no-fold", is_flag=True, help="Show repeated layers one by one.")
@click.option("--operators", is_flag=True, help="List each aten op with its calls, shapes and the modules that use it.")
@click.option("--unique", is_flag=True, help="List each distinct module once.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write trace.json, unique_modules.json and report.html to this folder.",
)
@json_option
@common_options
@click.pass_obj
@options_as(InspectOptions)
def command(session: Session, /, request: ModelRequest, options: InspectOptions) -> int:
    """Show the modules, operators, shapes and parameters of MODEL.

    \b
    MODEL is one of
      FILE.py::FUNCTION      a function that returns a model, or a model and inputs
      FILE.py::LOADER[NAME]  a ModelLoader class, with the variant to load
      PACKAGE.MODULE:NAME    a function or class of an installed package
      ID                     a model of the zoo, such as gpt2 (see `torchstone models`)
      tiny:TYPE              a small random transformers model, such as tiny:bert
      FOLDER, config.json    a Hugging Face configuration
      FILE.pt2               an exported program
      FOLDER, trace.json     the result of an earlier run with --dir

    Nothing is downloaded. By default the model is captured on tensors without data, so large models need no memory.

    Exit code 1 if the forward pass fails; everything that ran before the failure is shown.
    """  # noqa: D301 - click reads the escape
    from torchstone.workflows.model_source import load_trace
    from torchstone.workflows.result_folder import write_trace

    tree = None if options.as_json or options.operators or options.unique else _tree_options(options)
    progress = TerminalProgress(session)
    trace = load_trace(request, progress)
    click.echo(
        _document(trace) if options.as_json else _text(trace, tree, operators=options.operators, session=session)
    )
    if options.folder is not None:
        write_trace(options.folder, trace, progress)
    return EXIT_FINDINGS if trace.failure is not None else EXIT_FINE


def _tree_options(options: InspectOptions) -> "TreeOptions":
    from torchstone.report.inspect_text import COLUMNS, TreeOptions

    columns = tuple(name.strip() for name in options.columns.split(","))
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        msg = f"--columns has no {unknown[0]!r}; choose from {', '.join(COLUMNS)}"
        raise click.UsageError(msg)
    return TreeOptions(columns=columns, depth=options.depth, text=options.filter_text, fold=not options.no_fold)


def _document(trace: "Trace") -> bytes:
    import msgspec

    from torchstone.report.view.overview import inspection_document

    return msgspec.json.encode(inspection_document(trace))


def _text(trace: "Trace", tree: "TreeOptions | None", *, operators: bool, session: Session) -> str:
    from torchstone.report import inspect_text
    from torchstone.report.text import coloured, failure_text, plain

    paint = coloured if session.uses_color else plain
    if tree is not None:
        body = inspect_text.tree_text(trace, tree, paint)
    elif operators:
        body = inspect_text.operators_text(trace, paint)
    else:
        body = inspect_text.unique_text(trace, paint)
    parts = (body, inspect_text.totals_text(trace, paint), failure_text(trace, paint))
    return "\n\n".join(part for part in parts if part)
