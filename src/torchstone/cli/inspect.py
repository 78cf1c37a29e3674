"""torchstone inspect MODEL: what a model is made of."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from torchstone.cli.model_options import ModelRequest, model_options, requested_trace
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.result_folder import write_trace
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from torchstone.record.trace import Trace
    from torchstone.report.inspect_text import TreeOptions


@click.command()
@model_options
@click.option("--depth", type=click.IntRange(min=0), help="Show modules down to this depth.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only modules whose path or class contains TEXT.")
@click.option(
    "--columns",
    default="class,params,inputs,outputs,calls",
    show_default=True,
    metavar="NAMES",
    help="What to show of each module; there is also bytes.",
)
@click.option("--no-fold", is_flag=True, help="Show repeated layers one by one.")
@click.option("--operators", is_flag=True, help="Show each aten op with calls, shapes and the modules that use it.")
@click.option("--unique", is_flag=True, help="Show each distinct module once.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write trace.json, unique_modules.json and report.html to this folder.",
)
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, request: ModelRequest, *, folder: Path | None, as_json: bool, operators: bool, **shown: object
) -> int:
    """Show what MODEL is made of: modules, operators, shapes, parameters.

    MODEL is a file.py::function, a file.py::ModelLoader[variant], a pkg.mod:factory, a model of the zoo (`torchstone
    models` lists them), tiny:TYPE, a folder or config.json from Hugging Face, an exported .pt2 file, or a folder that
    an earlier run wrote with --dir. Nothing is downloaded, and big models need no memory.

    Exit code 1 when the model's forward pass fails; what ran before that is shown.
    """
    unique = bool(shown.pop("unique"))
    tree = None if as_json or operators or unique else _tree_options(shown)
    trace = requested_trace(request, session)
    if as_json:
        click.echo(_document(trace))
    else:
        click.echo(_text(trace, tree, operators=operators, session=session))
    if folder is not None:
        write_trace(folder, trace, session)
    return EXIT_FINDINGS if trace.failure is not None else EXIT_FINE


def _tree_options(shown: dict[str, object]) -> "TreeOptions":
    from torchstone.report.inspect_text import COLUMNS, TreeOptions

    columns = tuple(name.strip() for name in str(shown["columns"]).split(","))
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        msg = f"--columns has no {unknown[0]!r}; choose from {', '.join(COLUMNS)}"
        raise click.UsageError(msg)
    depth = shown["depth"]
    return TreeOptions(
        columns=columns,
        depth=depth if isinstance(depth, int) else None,
        text=str(shown["text"]),
        fold=not shown["no_fold"],
    )


def _document(trace: "Trace") -> bytes:
    import msgspec

    from torchstone.report.view.inspection import inspection_document

    return msgspec.json.encode(inspection_document(trace))


def _text(trace: "Trace", tree: "TreeOptions | None", *, operators: bool, session: Session) -> str:
    from torchstone.report import inspect_text
    from torchstone.report.text import coloured, plain

    paint = coloured if session.uses_color else plain
    if tree is not None:
        body = inspect_text.tree_text(trace, tree, paint)
    elif operators:
        body = inspect_text.operators_text(trace, paint)
    else:
        body = inspect_text.unique_text(trace, paint)
    parts = (body, inspect_text.totals_text(trace, paint), inspect_text.failure_text(trace, paint))
    return "\n\n".join(part for part in parts if part)
