"""torchstone map MODEL: a model's ops as calls of ttnn, each judged on a board."""

from pathlib import Path

import click

from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


@click.command()
@model_options
@click.option(
    "--device",
    default="n150",
    show_default=True,
    metavar="BOARD",
    help="The board: n150, n300, t3k, galaxy, p100, p150, p300, a descriptor.yaml, or hardware.",
)
@click.option(
    "--python", default="", metavar="ENV", help="The environment with ttnn.  [default: that of `torchstone ttnn setup`]"
)
@click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE.py",
    help="A file with mappings of your own; they replace those of torchstone.",
)
@click.option("--no-search", is_flag=True, help="Do not look for an accepted layout where the usual one is refused.")
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes at the same time.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write trace.json, mapping.json and report.html to this folder.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, request: ModelRequest, no_search: bool, as_json: bool, **fields: object) -> int:
    """Map the ops of MODEL to calls of Tenstorrent's ttnn, and call each on a mock device.

    Every distinct op configuration becomes one ttnn call, a composition, a view, or nothing. Each is really called, in
    bfloat16 and tile layout: accepted, refused with ttnn's text, or out of memory. Where it is not accepted, other
    layouts are tried. A mock device has no values: accepted never means numerically right.

    The exit code is 1 if a call of the model is not accepted.
    """
    from torchstone.record import codec
    from torchstone.report.map_text import mapping_text
    from torchstone.workflows.map import MapRequest, map_model

    wanted = request_from(MapRequest, {"model": request, "search": not no_search, **fields})
    mapping = map_model(wanted, TerminalProgress(session))
    click.echo(codec.encode(mapping).decode() if as_json else mapping_text(mapping))
    return EXIT_FINE if mapping.accepted_calls == mapping.calls else EXIT_FINDINGS
