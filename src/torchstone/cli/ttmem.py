"""ttmem: memory reports for people at a terminal, on this machine or far from it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from torchstone import __version__
from torchstone.cli import memory, serve
from torchstone.cli.memory import log_options, watching
from torchstone.cli.options import Session, common_options, json_option, request_from
from torchstone.cli.progress import TerminalProgress
from torchstone.errors import InputError, UnreadableFileError

if TYPE_CHECKING:
    from torchstone.memory.folder import MemoryFolder

_LOGS_SHOWN = 20
_REPORTS_SHOWN = 30
_LOG_PATTERNS = ("*.log", "*.log.gz", "*.log.xz", "*.log.zst")
_HAS_READLINE = find_spec("readline") is not None


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
    request = request_from(ReportRequest, {**fields, "all_documents": False})
    folder = parse_memory(request, progress, watch=watching(session)).folder
    click.echo(write_page(folder.path, folder.page, progress))
    progress.note(f"next: ttmem open {quote(folder.name)}, or ttmem serve")


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
    progress.note(f"next: ttmem open {quote(folder.name)}, or ttmem serve")


# questions


def _ask(ctx: click.Context) -> None:
    """Ask what to do until the user quits; a mistake is reported, and the menu comes again."""
    while True:
        choices = _choices()
        for key, choice in choices.items():
            click.echo(f"{key:>3}  {choice.text}", err=True)
        try:
            picked = click.prompt("What to do", default=next(iter(choices)), err=True).strip()
        except click.Abort:  # the end of the input, or Ctrl-C
            click.echo(err=True)
            return
        if picked == "q":
            return
        chosen = choices.get(picked)
        if chosen is None:
            click.echo(f"{picked!r} is not one of {', '.join(choices)}", err=True)
            continue
        try:
            _invoke(ctx, chosen)
        except (click.ClickException, InputError, UnreadableFileError) as error:
            message = error.format_message() if isinstance(error, click.ClickException) else str(error)
            click.echo(f"error: {message}", err=True)
        except click.Abort:
            click.echo(err=True)


_BACK = " (Enter: back)"


class _Choice(NamedTuple):
    text: str
    command: click.Command
    arguments: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()  # each answer is one more argument
    more: str = ""  # a question that is asked until the answer is empty


def _choices() -> dict[str, _Choice]:
    from torchstone.memory.folder import list_folders, reports_home

    reports = [one.name for one in list_folders(reports_home())][:_REPORTS_SHOWN]
    listed = [_Choice(f"process {log}", process, (str(log),)) for log in _logs()]
    listed += [_Choice(f"open {name}", open_report, (name,)) for name in reports]
    return {str(number): choice for number, choice in enumerate(listed, start=1)} | {
        "p": _Choice("process another log: give its path", process, questions=(f"Log{_BACK}",)),
        "l": _Choice("cut a long log down to its last run", memory.last_run, questions=(f"Log{_BACK}",)),
        "c": _Choice(
            "compare runs: logs or reports",
            memory.compare,
            questions=(f"First{_BACK}", "Second"),
            more="Another (Enter: none)",
        ),
        "h": _Choice("history of a report", memory.history, questions=(f"Report{_BACK}",)),
        "b": _Choice("open a report in the browser", open_report, ("--browser",), (f"Report{_BACK}",)),
        "s": _Choice("serve all reports in a browser, until Ctrl-C", serve_reports),
        "d": _Choice("make a demo report", demo),
        "q": _Choice("quit", command),
    }


def _invoke(ctx: click.Context, choice: _Choice) -> None:
    answers: list[str] = []
    for question in choice.questions:
        answers.append(_ask_path(question))
        if not answers[-1]:
            return  # back to the menu
    while choice.more and (answer := _ask_path(choice.more)):
        answers.append(answer)
    arguments = [*choice.arguments, *answers]
    with choice.command.make_context(choice.command.name, arguments, parent=ctx) as inner:
        choice.command.invoke(inner)


def _ask_path(question: str) -> str:
    """A log or a report, "" for none; Tab completes paths and names, and what is not there is asked again."""
    from torchstone.memory.folder import list_folders, locate, reports_home

    names = [one.name for one in list_folders(reports_home())]
    with _completion(names):
        while True:
            # without a prompt of its own, readline would erase the text in front of the answer
            answer = str(click.prompt(question, default="", show_default=False, err=not _HAS_READLINE)).strip()
            if not answer:
                return ""
            given = os.path.expanduser(answer)  # noqa: PTH111 - it leaves an unknown user as it is
            try:
                locate(given)
            except (UnreadableFileError, InputError) as error:
                click.echo(f"error: {error}", err=True)
            else:
                return given


@contextmanager
def _completion(names: list[str]) -> Iterator[None]:
    """Complete paths and report names with Tab, where Python has readline."""
    if not _HAS_READLINE:
        yield
        return
    import readline

    def answer(text: str, state: int) -> str | None:
        found = [*(name for name in names if name.startswith(text)), *completed_paths(text)]
        return found[state] if state < len(found) else None

    before, delimiters = readline.get_completer(), readline.get_completer_delims()
    readline.set_completer(answer)
    readline.set_completer_delims("\n")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before)
        readline.set_completer_delims(delimiters)


def completed_paths(text: str) -> list[str]:
    """The paths that begin with a text; folders end in a slash."""
    start = Path(os.path.expanduser(text))  # noqa: PTH111 - it leaves an unknown user as it is
    folder, begin = (start, "") if text.endswith("/") or not text else (start.parent, start.name)
    if not folder.is_dir():
        return []
    found = sorted(one for one in folder.iterdir() if one.name.startswith(begin))
    return [f"{one}/" if one.is_dir() else str(one) for one in found]


def _logs() -> list[Path]:
    """The newest logs of this folder and those in it, and captured logs that have no report yet."""
    from torchstone.memory.folder import TIMELINE_SUFFIX, reports_home

    found = {path for pattern in _LOG_PATTERNS for path in (*Path().glob(pattern), *Path().glob(f"*/{pattern}"))}
    captured = (log for log in reports_home().glob("*/*.log") if not any(log.parent.glob(f"*{TIMELINE_SUFFIX}")))
    files = [path for path in {*found, *captured} if path.is_file()]
    return sorted(files, key=lambda path: (-path.stat().st_mtime, str(path)))[:_LOGS_SHOWN]


def main() -> NoReturn:
    """The `ttmem` command."""
    from torchstone.cli.main import start

    start(command, "ttmem")
