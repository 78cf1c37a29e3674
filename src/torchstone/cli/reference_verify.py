"""torchstone reference verify D: build the model again, replay, compare."""

from pathlib import Path

import click

from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import step
from torchstone.cli.reference_options import pcc_option, show_comparison


@click.command()
@click.argument("folder", metavar="D", type=click.Path(path_type=Path, file_okay=False))
@click.option("--model", metavar="MODEL", help="Where the model is now, when it is not where it was.")
@click.option("--inputs", metavar="FILE.py::FN", help="Where the function of the inputs is now, when it has moved.")
@pcc_option
@click.option("--only-wrong", is_flag=True, help="List only the tensors that are wrong.")
@json_option
@common_options
@click.pass_obj
def command(
    session: Session, /, *, folder: Path, model: str | None, inputs: str | None, pcc: float, **shown: bool
) -> int:
    """Build the model of the reference in D again, replay the golden inputs and compare with what it gave.

    The weights come from weights.safetensors when the reference was made with --with-weights, and from the model's own
    source and the seed otherwise. Exit code 1 when a tensor is wrong.
    """
    with step(f"replaying {folder}", session):
        from torchstone.reference.verifying import verify

        found = verify(folder, model=model, inputs=inputs, pcc=pcc)
    return show_comparison(found, session, only_wrong=shown["only_wrong"], as_json=shown["as_json"])
