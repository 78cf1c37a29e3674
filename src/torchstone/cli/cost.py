"""torchstone cost MODEL: FLOPs, bytes, peak memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.cost_pricing import COUNTS, costs_of, exit_code, logits_argument, write_csv
from torchstone.cli.formula_provider import provider_options
from torchstone.cli.model_options import ModelRequest, model_options, requested_trace
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import InputError

if TYPE_CHECKING:
    from torchstone.cost.peers import PeerCount
    from torchstone.record.cost import CostTable
    from torchstone.record.trace import Trace

COST_FILE = "cost.json"
_OPTIMISERS = ("sgd", "momentum", "adam", "adamw")


@click.command()
@model_options
@click.option(
    "--count",
    type=click.Choice(list(COUNTS)),
    default="flops",
    show_default=True,
    help="A multiply-add counts as two FLOPs, or as one MAC.",
)
@click.option(
    "--causal",
    type=click.Choice(["full", "half"]),
    default="full",
    show_default=True,
    help="Count causal attention kernels in full, or only the half that is not masked.",
)
@click.option(
    "--by",
    type=click.Choice(["module", "op", "class", "depth", "formula"]),
    default="module",
    show_default=True,
    help="What the first table lists; formula: each module by its formula, beside what was traced.",
)
@click.option(
    "--agent",
    is_flag=True,
    help="With --by formula: let an agent write what cannot be derived; right answers are used as pending.",
)
@provider_options
@click.option("--depth", type=click.IntRange(min=0), default=4, show_default=True, help="Show modules to this depth.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only modules whose path or class contains TEXT.")
@click.option("--no-fold", is_flag=True, help="Show repeated layers one by one.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Show so many ops.")
@click.option(
    "--prices",
    "prices_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.py",
    help="A file that prices your custom ops with @register_price.",
)
@click.option(
    "--hardware",
    metavar="NAME|FILE.toml",
    help="Predict the time on a device by its roofline; `torchstone hardware` lists them.",
)
@click.option(
    "--tp",
    "devices",
    type=click.IntRange(min=2),
    metavar="N",
    help="Split the matmuls over N devices, and count what they must exchange.",
)
@click.option(
    "--optimizer", type=click.Choice(_OPTIMISERS), help="Add the states and the step of an optimiser (with --backward)."
)
@click.option(
    "--logits",
    type=click.Choice(["all", "last"]),
    help="Compute the logits of all tokens, or only of the last, where the model lets us choose.",
)
@click.option(
    "--sweep", metavar="NAME=A..B", help="Price for several seq_len, batch_size, cache_len, image_size or layers."
)
@click.option(
    "--compare-with",
    metavar="NAMES",
    help="Run other counters on the same model and explain each difference: flop_counter, fvcore, ...",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when an op has no price.")
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False), help="Write one line per module, or per size."
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write trace.json, cost.json and report.html to this folder.",
)
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, request: ModelRequest, **given: Any) -> int:
    """Show what MODEL costs: FLOPs, bytes moved, peak memory, by module and by op.

    MODEL is anything that `torchstone inspect` takes, or a folder or trace.json that an earlier run wrote: pricing a
    saved trace needs no torch. Nothing is run on the real data, and big models need no memory.

    Exit code 1 when the model's forward pass fails, and with --strict when an op has no price.
    """
    _load_prices(given["prices_file"])
    if given["by"] != "formula" and (given["agent"] or given["answers"] is not None):
        msg = f"{'--agent' if given['agent'] else '--answers'} asks for formulas; add --by formula, or leave it out"
        raise InputError(msg)
    if given["sweep"] is not None:
        from torchstone.cli.cost_sweep import run_sweep

        return run_sweep(request, given, session)
    if given["by"] == "formula":
        from torchstone.cli.cost_formula import run_by_formula

        return run_by_formula(request, given, session)
    trace = requested_trace(request, session, logits_argument(given["logits"]))
    table = costs_of(trace, request, given)
    counts = _counts(table, request, given, session)
    click.echo(_document(table, counts) if given["as_json"] else _text(table, trace, counts, given, session))
    if given["csv_file"] is not None:
        from torchstone.report.cost_text import module_csv

        write_csv(given["csv_file"], module_csv(table.modules))
    if given["folder"] is not None:
        _write_folder(given["folder"], trace, table, session)
    return exit_code(table.unpriced, failed=trace.failure is not None, strict=given["strict"])


def _load_prices(path: Path | None) -> None:
    """Run the user's file, which registers its prices."""
    if path is None:
        return
    from runpy import run_path

    if not path.is_file():
        msg = f"cannot read {path}, given with --prices; give a Python file that uses @register_price"
        raise InputError(msg)
    try:
        run_path(str(path))
    except InputError:
        raise
    except Exception as error:  # the user's code may raise anything
        msg = f"{path}, given with --prices, stops with {type(error).__name__}: {error}"
        raise InputError(msg) from error


def _counts(
    table: "CostTable", request: ModelRequest, given: dict[str, Any], session: Session
) -> "list[PeerCount] | None":
    """What other counters say, where that was asked for."""
    if given["compare_with"] is None:
        return None
    from torchstone.cli.cost_peers import peer_counts

    return peer_counts(table, request, given["compare_with"], session)


def _document(table: "CostTable", counts: "list[PeerCount] | None") -> bytes:
    from torchstone.record.codec import encode

    document = encode(table)
    if counts is None:
        return document
    from torchstone.cli.cost_peers import comparison_document

    return document[:-1] + b',"comparison":' + comparison_document(table, counts) + b"}"


def _text(
    table: "CostTable", trace: "Trace", counts: "list[PeerCount] | None", given: dict[str, Any], session: Session
) -> str:
    from torchstone.report.cost_text import CostTextOptions, cost_text
    from torchstone.report.prediction_text import prediction_text
    from torchstone.report.text import coloured, plain

    options = CostTextOptions(
        depth=given["depth"], text=given["text"], fold=not given["no_fold"], top=given["top"], by=given["by"]
    )
    paint = coloured if session.uses_color else plain
    parts = [cost_text(table, trace, options, paint), prediction_text(table, trace, given["top"], paint)]
    if counts is not None:
        from torchstone.cli.cost_peers import comparison_text

        parts.append(comparison_text(table, counts))
    return "\n\n".join(part for part in parts if part)


def _write_folder(folder: Path, trace: "Trace", table: "CostTable", session: Session) -> None:
    from torchstone.cli.result_folder import write_trace
    from torchstone.record.codec import save

    try:
        save(folder / COST_FILE, table)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; choose another --dir"
        raise InputError(msg) from error
    write_trace(folder, trace, session)
