"""torchstone reference compare D CANDIDATE: somebody's port against the golden data."""

from pathlib import Path

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.cli.reference_options import pcc_option, show_comparison


@click.command()
@click.argument("folder", metavar="D", type=click.Path(path_type=Path, file_okay=False))
@click.argument("candidate", metavar="CANDIDATE", type=click.Path(path_type=Path, dir_okay=False))
@pcc_option
@click.option("--allow-missing", is_flag=True, help="Outputs that CANDIDATE does not have are told, and not wrong.")
@click.option("--only-wrong", is_flag=True, help="List only the tensors that are wrong.")
@click.option("--save", is_flag=True, help="Write D/comparison.json and render the report again with it.")
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, folder: Path, candidate: Path, pcc: float, save: bool, **shown: bool) -> int:
    """Compare the tensors in CANDIDATE (.safetensors, .npz or .pt) with the golden data in D, in order of execution.

    Tensors have the names of the golden data (`outputs/logits`, `modules/encoder.layer.0/outputs`), or shorter ones
    where they are clear: `logits`, `encoder.layer.0`. Outputs must be there (but for --allow-missing); inputs and
    intermediates may be.

    Exit code 1 when a tensor is wrong; the first module where it goes wrong is named, and what to look at next.
    """
    with step(f"comparing {candidate}", session):
        from torchstone.reference.comparing import compare

        found = compare(folder, candidate, pcc=pcc, allow_missing=shown["allow_missing"])
    if save:
        from torchstone.cli.reference_options import save_comparison

        save_comparison(folder, found, session)
    return show_comparison(found, session, only_wrong=shown["only_wrong"], as_json=shown["as_json"])
