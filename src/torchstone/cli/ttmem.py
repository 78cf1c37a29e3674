"""ttmem: memory reports for people at a terminal, on this machine or far from it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from torchstone import __version__
from torchstone.cli import serve
from torchstone.cli.memory import log_options, watching
from torchstone.cli.options import Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import InputError, UnreadableFileError

if TYPE_CHECKING:
    from torchstone.memory.folder import MemoryFolder

_LOGS_SHOWN = 20


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ttmem")
@common_options
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look at device memory: pick a log, process it, browse the reports in ~/.ttmem/reports.

    Without a command ttmem asks what to do. Every question has a command of its own, so nothing needs a terminal.
    TTMEM_HOME moves the place of the reports.
    """
    if ctx.invoked_subcommand is None:
        if not sys.stdin.isatty():
            msg = "ttmem asks questions only at a terminal; say what to do: process LOG, list, open NAME, serve or demo"
            raise click.UsageError(msg)
        _ask(ctx)


@command.command("process")
@click.argument("source", metavar="LOG", type=click.Path())
@click.option("--name", default="", metavar="NAME", help="The report name.  [default: from the log]")
@log_options
@common_options
@click.pass_obj
def process(session: Session, /, **fields: object) -> None:
    """Read LOG and write its report."""
    from torchstone.workflows.memory import ReportRequest, parse_memory, write_page

    progress = TerminalProgress(session)
    folder = parse_memory(request_from(ReportRequest, fields), progress, watch=watching(session)).folder
    click.echo(write_page(folder.path, folder.page, progress))
    progress.note(f"next: ttmem open {folder.name}, or ttmem serve")


@command.command("list")
@json_option
@common_options
@click.pass_obj
def list_reports(session: Session, *, as_json: bool) -> None:
    """List the reports, newest first."""
    import msgspec

    from torchstone.memory.folder import list_folders, reports_home

    folders = list_folders(reports_home())
    if as_json:
        rows = [{"name": one.name, "directory": str(one.path), "page": one.page.exists()} for one in folders]
        click.echo(msgspec.json.encode({"schema": "torchstone/ttmem-reports/1", "reports": rows}))
        return
    for one in folders:
        click.echo(f"{one.name}\t{one.path}")
    if not folders:
        TerminalProgress(session).note(
            f"there are no reports in {reports_home()}; ttmem demo makes one without a device"
        )


@command.command("open", short_help="Show a report here, and where its page is.")
@click.argument("name")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="Rows of each table.")
@click.option("--browser", is_flag=True, help="Open the page in the browser too.")
@common_options
@click.pass_obj
def open_report(session: Session, *, name: str, top: int, browser: bool) -> None:
    """Show the report NAME: the answer here, and where its page is."""
    from torchstone.memory.folder import read_timeline as read_saved
    from torchstone.memory.study import Study
    from torchstone.report.memory_text import memory_text
    from torchstone.report.text import coloured, plain
    from torchstone.workflows.memory import write_page

    folder = _folder_named(name)
    page = folder.page if folder.page.exists() else write_page(folder.path, folder.page, TerminalProgress(session))
    paint = coloured if session.uses_color else plain
    click.echo(memory_text(Study(read_saved(folder.timeline)), top=top, paint=paint))
    click.echo(f"\n{page}")
    if browser:
        click.launch(page.resolve().as_uri())


def _folder_named(name: str) -> "MemoryFolder":
    from torchstone.memory.folder import find_folder, list_folders, locate, reports_home

    try:
        place = locate(name)
    except UnreadableFileError as error:
        known = ", ".join(one.name for one in list_folders(reports_home())) or "none; ttmem demo makes one"
        msg = f"there is no report {name!r}; reports: {known}"
        raise InputError(msg) from error
    if not place.is_dir():
        msg = f"{name} is a file, not a report; run `ttmem process {name}` first"
        raise InputError(msg)
    return find_folder(place)


@command.command("serve", short_help="Show all reports in a browser, until Ctrl-C.")
@click.option("--port", default=serve.DEFAULT_PORT, show_default=True, type=click.IntRange(1, 65_000),
              help="The first port to try; the next free one is taken.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; another needs --token.")
@click.option("--token", is_flag=True, help="Ask for a token; it is part of the address that is printed.")
@click.option("--open", "open_page", is_flag=True, help="Open the list in the browser.")
@common_options
@click.pass_context
def serve_reports(ctx: click.Context, *, port: int, host: str, token: bool, open_page: bool) -> None:
    """Show all reports in a browser, until Ctrl-C; prints the address and the ssh line to reach it from elsewhere."""
    from torchstone.memory.folder import reports_home

    home = reports_home()
    home.mkdir(parents=True, exist_ok=True)
    ctx.invoke(serve.command, folder=home, port=port, host=host, token=token, open_page=open_page)


@command.command("demo")
@click.option("--out-of-memory", is_flag=True, help="The same model on a device that is too small.")
@common_options
@click.pass_obj
def demo(session: Session, *, out_of_memory: bool) -> None:
    """Make a sample log and its report; no device is needed."""
    from torchstone.workflows.memory import write_demo

    progress = TerminalProgress(session)
    folder = write_demo(out_of_memory=out_of_memory, progress=progress)
    click.echo(folder.page)
    progress.note(f"the log is {folder.log}")
    progress.note(f"next: ttmem open {folder.name}, or ttmem serve")


# questions


def _ask(ctx: click.Context) -> None:
    from torchstone.memory.folder import list_folders, reports_home

    logs = _logs_here()
    reports = list_folders(reports_home())
    choices: list[tuple[str, click.Command, list[str]]] = [
        *((f"process {log}", process, [str(log)]) for log in logs),
        *((f"open {one.name}", open_report, [one.name]) for one in reports),
        ("serve all reports in a browser", serve_reports, []),
        ("make a demo report", demo, []),
    ]
    for number, (text, _, _) in enumerate(choices, start=1):
        click.echo(f"{number:3}  {text}", err=True)
    picked = click.prompt("What to do", type=click.IntRange(1, len(choices)), default=1, err=True)
    _, chosen, arguments = choices[picked - 1]
    with chosen.make_context(chosen.name, arguments, parent=ctx) as inner:
        chosen.invoke(inner)


def _logs_here() -> list[Path]:
    """The newest logs of this folder."""
    found = [path for pattern in ("*.log", "*.log.gz") for path in Path().glob(pattern)]
    return sorted(found, key=lambda path: -path.stat().st_mtime)[:_LOGS_SHOWN]


def main() -> NoReturn:
    """The `ttmem` command."""
    from torchstone.cli.main import run

    sys.exit(run(program=command, name="ttmem"))
