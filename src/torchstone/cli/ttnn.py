"""torchstone ttnn: ttnn's environment, its mock boards, and verdicts on traced configurations."""

from pathlib import Path
from shlex import quote

import click

from torchstone.cli.database_options import command_line
from torchstone.cli.options import Session, common_options, json_option
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

DOCTOR_SCHEMA = "torchstone/ttnn_doctor/1"
SETUP_SCHEMA = "torchstone/ttnn_setup/1"
JUDGE_SCHEMA = "torchstone/ttnn_judgements/1"
DIFF_SCHEMA = "torchstone/ttnn_diff/1"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Use Tenstorrent's ttnn without hardware, on its mock device.

    `setup` makes an environment with ttnn, `doctor` shows what it can open, `judge` tells for traced configurations
    whether ttnn accepts them on a board. A mock device has the real allocator and the real validation of ops, but no
    values: accepted never means numerically right.
    """


@command.command(short_help="Make an environment with ttnn.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="ENV",
    help="The folder of the environment.  [default: $TORCHSTONE_TTNN or ~/.cache/torchstone/ttnn]",
)
@click.option(
    "--python",
    default="3.12",
    show_default=True,
    metavar="VERSION|PATH",
    help="The interpreter: ttnn has wheels for 3.12 and 3.10.",
)
@click.option(
    "--ttnn", "version", default="", metavar="VERSION", help="The version of ttnn, such as 0.75.0.  [default: 0.81.1]"
)
@click.option("--no-torch", is_flag=True, help="Without torch (7 GB), which only tracing needs.")
@json_option
@common_options
@click.pass_obj
def setup(
    session: Session, /, *, folder: Path | None, python: str, version: str, no_torch: bool, as_json: bool
) -> None:
    """Make an environment with ttnn, or complete the one that is there.

    Installs ttnn and torch from PyPI. Where Tenstorrent's kernel compiler SFPI is not installed, adds a stand-in, which
    needs Debian's gcc-riscv64-unknown-elf and is good for mock devices alone.
    """
    import msgspec

    from torchstone.report.ttnn_text import diagnosis_text
    from torchstone.workflows.ttnn import SetupRequest, set_up_ttnn

    request = SetupRequest(folder=folder, python=python, version=version, with_torch=not no_torch)
    progress = TerminalProgress(session)
    found = set_up_ttnn(request, progress)
    if as_json:
        click.echo(msgspec.json.encode({"schema": SETUP_SCHEMA, **msgspec.to_builtins(found)}))
    else:
        click.echo(diagnosis_text(found, ()))
    progress.note(f"next: torchstone ttnn doctor --python {quote(str(found.python))}")


@command.command(short_help="Show the environment and open each board.")
@click.option("--python", default="", metavar="ENV", help="The environment: a folder or an interpreter.")
@click.option("--device", "devices", multiple=True, metavar="BOARD", help="Only this board; repeat for several.")
@json_option
@common_options
@click.pass_obj
def doctor(session: Session, /, *, python: str, devices: tuple[str, ...], as_json: bool) -> int:
    """Show ttnn's version, its compiler and devices, and open each board.

    The exit code is 1 if ttnn is missing or a board cannot be opened.
    """
    import msgspec

    from torchstone.report.ttnn_text import diagnosis_text
    from torchstone.workflows.ttnn import diagnose_ttnn

    found = diagnose_ttnn(python, devices, TerminalProgress(session))
    if as_json:
        document = {"environment": found.environment, "boards": found.boards, "healthy": found.is_healthy}
        click.echo(msgspec.json.encode({"schema": DOCTOR_SCHEMA, **msgspec.to_builtins(document)}))
    else:
        click.echo(diagnosis_text(found.environment, found.boards))
    return EXIT_FINE if found.is_healthy else EXIT_FINDINGS


@command.command(short_help="Judge traced configurations on boards.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True), metavar="FILE...")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="BOARD",
    help="n150, n300, t3k, galaxy, p100, p150, p300, a descriptor.yaml, hardware, or auto (the board of each trace). "
    "Repeat it to compare boards.  [default: auto]",
)
@click.option(
    "--python", "pythons", multiple=True, metavar="ENV", help="An environment with ttnn. Repeat it to compare versions."
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("sweep"),
    show_default=True,
    help="The sweep folder that keeps the results.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes at the same time.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Timeout per configuration.  [default: 120]",
)
@json_option
@common_options
@click.pass_obj
def judge(session: Session, /, *, as_json: bool, **fields: object) -> int:  # fmt: skip
    """Tell for each traced configuration whether ttnn accepts it: accepted, refused, out of memory or crashed.

    FILE is whatever `torchstone db import` reads: master files of both generations, operation traces, graph reports.
    With several boards or environments, shows what breaks from the first to each other one, and why. The exit code is 1
    if a configuration was not accepted.
    """
    import msgspec

    from torchstone.cli.options import request_from
    from torchstone.report.ttnn_text import judgements_text
    from torchstone.workflows.ttnn import JudgeRequest, judge_configurations

    request = request_from(JudgeRequest, {**fields, "command": command_line()})
    found = judge_configurations(request, TerminalProgress(session))
    if as_json:
        click.echo(msgspec.json.encode({"schema": JUDGE_SCHEMA, **msgspec.to_builtins(found)}))
    else:
        click.echo(judgements_text(found.runs, dict(found.differences)))
    return EXIT_FINE if all(run.outcomes.keys() <= {"accepted"} for run in found.runs) else EXIT_FINDINGS


@command.command(short_help="Compare two versions of ttnn.")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[FILE]...")
@click.option("--python", "pythons", multiple=True, metavar="ENV", help="An environment with ttnn; give it twice.")
@click.option(
    "--device", "devices", multiple=True, metavar="BOARD", help="The board for the verdicts.  [default: auto]"
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("sweep"),
    show_default=True,
    help="The sweep folder that keeps the verdicts.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes at the same time.")
@json_option
@common_options
@click.pass_obj
def diff(session: Session, /, *, as_json: bool, **fields: object) -> int:
    """Compare two versions of ttnn: ops, signatures, and the verdicts on traced configurations where FILEs are given.

    `torchstone ttnn setup --ttnn VERSION --dir ENV` makes an environment with another version. The exit code is 1 if an
    op is gone, lost an argument or requires a new one, or if a configuration breaks.
    """
    import msgspec

    from torchstone.cli.options import request_from
    from torchstone.report.ttnn_text import versions_text
    from torchstone.workflows.ttnn import JudgeRequest, compare_versions

    request = request_from(JudgeRequest, {**fields, "command": command_line()})
    found = compare_versions(request, TerminalProgress(session))
    if as_json:
        click.echo(msgspec.json.encode({"schema": DIFF_SCHEMA, **msgspec.to_builtins(found)}))
    else:
        click.echo(versions_text(found))
    return EXIT_FINE if found.is_compatible else EXIT_FINDINGS
