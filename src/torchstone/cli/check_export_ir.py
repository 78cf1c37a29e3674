"""torchstone check export-ir: the IR of one module, exported in a process of its own."""

from pathlib import Path
from typing import Any

import click

from torchstone.cli.check_options import settings_of
from torchstone.cli.options import Session, common_options, json_option
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE


@click.command(short_help="Export the IR of one module.")
@click.option("--module-id", required=True, metavar="ID", help="The id of a unique module: mod_000, mod_004_conv1.")
@click.option(
    "--modules-json",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The unique_modules.json that a check wrote.",
)
@click.option("--backend", default="", metavar="NAME", help="Another backend than that of the check.")
@click.option("--backend-option", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of that backend.")
@click.option("--python", "interpreter", metavar="PATH", help="The Python of the environment of that backend.")
@click.option("--timeout", "deadline_s", type=click.FloatRange(min=0.1), default=300.0, show_default=True,
              metavar="SECONDS", help="How long it may take.")  # fmt: skip
@json_option
@common_options
@click.pass_obj
def command(session: Session, /, *, module_id: str, modules_json: Path, as_json: bool, **given: Any) -> int:
    """Export the IR of one module of an earlier check, and nothing else: to debug a failing export.

    The files go to irs/ID beside unique_modules.json. Exit code 1 when the export fails.
    """
    import msgspec

    from torchstone.check.exporting import export_ir, read_about, settings_with
    from torchstone.check.settings import Folder

    about = read_about(Folder(path=modules_json.resolve().parent))
    settings = settings_with(settings_of({**given, "memory_limit": None}), about)
    unit, result = export_ir(modules_json, module_id, settings)
    failed = bool(result.ir_error) or result.failed
    if as_json:
        document = {"schema": "torchstone/exported_ir/1", "module": unit, "backend": settings.backend}
        click.echo(msgspec.json.encode(document | {"result": msgspec.to_builtins(result)}))
    elif failed:
        words = result.ir_error or result.reason
        click.echo(f"{unit} on {settings.backend}: {result.outcome.value}: {words}")
        if result.proof is not None and not session.quiet:
            click.echo(result.proof.traceback or result.proof.last_output, err=True)
    else:
        for file in result.irs:
            click.echo(modules_json.parent / file)
    return EXIT_FINDINGS if failed else EXIT_FINE
