"""The table of commands, and the one place where errors become messages and exit codes."""

import atexit
import gc
import os
import signal
import sys
import threading
from _thread import interrupt_main
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from sysconfig import get_paths
from traceback import extract_tb, print_exc
from types import FrameType
from typing import NamedTuple, NoReturn, TextIO

import click
from click import echo  # the user's code may replace functions of click; an error is reported all the same
from click.shell_completion import shell_complete

from torchstone import __version__
from torchstone.cli.options import Session
from torchstone.cli.project_settings import find_settings
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS, one_line, plain_output
from torchstone.errors import (
    EXIT_BAD_INPUT,
    EXIT_FINDINGS,
    EXIT_FINE,
    EXIT_INTERNAL_ERROR,
    EXIT_INTERRUPTED,
    InputError,
    TorchstoneError,
    missing_extra,
    refused_by_system,
)
from torchstone.foreign import end_soon, kept_process, printable
from torchstone.report.text import fitted

_DELETED_S = 0.01  # after which an object that was being deleted is gone
_YOUNG_OBJECTS = 100_000  # after which Python looks for garbage: to import torch makes many objects and no garbage


class Entry(NamedTuple):
    """Where a command lives and the line that `torchstone --help` shows, known without importing it."""

    module: str
    summary: str


COMMANDS = {
    "analyze": Entry(module="torchstone.cli.analyze", summary="Answer every question about a model on one page."),
    "inspect": Entry(module="torchstone.cli.inspect", summary="Show a model's modules, operators and shapes."),
    "cost": Entry(
        module="torchstone.cli.cost", summary="Show FLOPs, bytes, peak memory and predicted time of a model."
    ),
    "formula": Entry(module="torchstone.cli.formula", summary="Show the cost of a module class as a formula."),
    "reference": Entry(
        module="torchstone.cli.reference", summary="Generate golden data and reference artifacts for a bring-up."
    ),
    "check": Entry(
        module="torchstone.cli.check", summary="Find which parts of a model run on a backend and what fails."
    ),
    "hardware": Entry(module="torchstone.cli.hardware", summary="List the devices whose time `cost` can predict."),
    "backends": Entry(
        module="torchstone.cli.backends", summary="List the backends, here or in another Python environment."
    ),
    "models": Entry(module="torchstone.cli.models", summary="List the model configurations of torchstone."),
    "memory": Entry(module="torchstone.cli.memory", summary="Analyze device memory from a runtime log."),
    "trace": Entry(module="torchstone.cli.trace", summary="Record in the database which ops a test or model calls."),
    "sweep": Entry(
        module="torchstone.cli.sweep", summary="Generate op tests from traced calls, run them on a backend."
    ),
    "map": Entry(module="torchstone.cli.map", summary="Map a model's ops to calls of ttnn, judged without hardware."),
    "ttnn": Entry(module="torchstone.cli.ttnn", summary="Judge calls of Tenstorrent's ttnn without hardware."),
    "ops": Entry(module="torchstone.cli.ops", summary="List the configurations in which models call an op."),
    "db": Entry(module="torchstone.cli.db", summary="Import, export, merge and verify the op database."),
    "cache": Entry(module="torchstone.cli.cache", summary="Show or delete the captures that are kept."),
    "completion": Entry(module="torchstone.cli.completion", summary="Print the script for completion in a shell."),
    "diff": Entry(module="torchstone.cli.diff", summary="Compare two folders of results, side by side."),
    "report": Entry(module="torchstone.cli.report", summary="Render a folder of results as one HTML page."),
    "serve": Entry(module="torchstone.cli.serve", summary="Serve all reports of a folder to a browser."),
}


class CommandTable(click.Group):
    """A group that imports a command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names in the table, in its order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import one command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = import_module(entry.module).command
        assert isinstance(command, click.Command)  # noqa: S101 - the table is ours
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line; an unknown one is answered with the nearest name."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name in COMMANDS:
            found = super().resolve_command(ctx, args)
            if not {"-h", "--help"}.intersection(args):
                _apply_project_settings(ctx, name, found[1])
            return found
        near = get_close_matches(name, COMMANDS, n=1)
        msg = f"there is no command {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        raise click.UsageError(msg, ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Show the table without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def _apply_project_settings(ctx: click.Context, name: str, command: click.Command | None) -> None:
    """Make what pyproject.toml says the defaults of a command; no command line needs to repeat it."""
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        msg = "the current folder was removed; change to another one"
        raise InputError(msg) from error
    settings = find_settings(here)
    unknown = [one for one in settings.table if one not in COMMANDS] if settings is not None else []
    if settings is not None and unknown:
        near = get_close_matches(unknown[0], COMMANDS, n=1)
        msg = f"{settings.file}: [tool.torchstone] has no command {unknown[0]!r}"
        raise InputError(msg + (f"; did you mean {near[0]!r}?" if near else ""))
    if settings is not None and command is not None and name in settings.table:
        ctx.default_map = {name: settings.defaults(name, command)}


@click.command(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="torchstone")
def cli() -> None:
    """Analyze PyTorch models: structure, cost, and what runs on your backend."""


def run(arguments: Sequence[str] | None = None, *, program: click.Command = cli, name: str = "torchstone") -> int:
    """Run one command line, of torchstone or of another program it installs, and give its exit code."""
    with (
        plain_output() as reopen_closed,
        _ended_tidily(),
        _interrupts_kept(),
        kept_process(on_exit=_left_by_foreign_code, on_return=reopen_closed) as process,
    ):
        return _run(arguments, program=program, name=name, process=process)


def _left_by_foreign_code(code: object) -> NoReturn:
    """End the process that the user's code ended by os._exit, with a sentence and with an exit code that says so."""
    _report(
        InputError(f"the user's code ended the process by os._exit({code}); let it return, or raise an error"),
        Session(),
    )
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(EXIT_BAD_INPUT)


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the command ends as after Ctrl-C, so that temporary files and workers go with it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number  # what a shell reports for a process that the signal ended


@contextmanager
def _ended_tidily() -> Iterator[None]:
    """Let the signals that ask a process to end run what tidies up; one that is ignored, as by nohup, stays ignored."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []

    def end(number: int, _frame: object) -> None:
        for one in taken:
            signal.signal(one, signal.SIG_IGN)  # a second one must not stop the tidying; SIGKILL still ends it
        raise _Terminated(number)

    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _interrupt_main() -> None:
    """Interrupt the main thread, also where it waits: a system call ends by a true signal alone."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        interrupt_main()


class _Interrupts:
    """Notices interrupts: an error after one follows from it, such as that of a library which is half imported."""

    def __enter__(self) -> None:
        self._came = False
        on_main_thread = threading.current_thread() is threading.main_thread()
        self._watches = on_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._watches:
            signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._came = True
        signal.default_int_handler(number, frame)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._watches:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._came and isinstance(error, Exception) and not isinstance(error, click.exceptions.Exit):
            raise KeyboardInterrupt from error


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Raise an interrupt once more that came while an object was deleted, where Python prints it and goes on."""
    printed = sys.unraisablehook

    def keep(dropped: "sys.UnraisableHookArgs") -> None:
        error = dropped.exc_value
        if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
            printed(dropped)
            return
        before = signal.getsignal(signal.SIGINT)

        def again(_number: int, _frame: object) -> None:
            signal.signal(signal.SIGINT, before)
            raise error

        signal.signal(signal.SIGINT, again)
        later = threading.Timer(_DELETED_S, _interrupt_main)
        later.daemon = True
        restored.callback(signal.signal, signal.SIGINT, before)
        restored.callback(later.cancel)
        later.start()

    sys.unraisablehook = keep
    with ExitStack() as restored:
        try:
            yield
        finally:
            sys.unraisablehook = printed


def _run(arguments: Sequence[str] | None, *, program: click.Command, name: str, process: kept_process) -> int:
    session = Session()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _Interrupts():
            outcome = _invoke(program, given, name, session)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _shortened(error).show()
        return error.exit_code
    except _Terminated as end:
        click.echo("torchstone: terminated", err=True)
        return end.exit_code
    except (click.Abort, KeyboardInterrupt, EOFError):
        click.echo("torchstone: interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _lead_nowhere(sys.stdout)  # the reader closed the pipe
        return EXIT_FINE
    except TorchstoneError as error:
        return _report(error, session)
    except (OSError, MemoryError) as error:
        return _report(refused_by_system(error), session)
    except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever is left is an internal error
        missing = missing_extra(error, needed_for=" ".join([name, *given[:1]]))
        foreign = _of_foreign_code(error) if process.ran else None
        return _report(missing or foreign or error, session)
    return outcome if isinstance(outcome, int) else EXIT_FINE


def _of_foreign_code(error: BaseException) -> InputError | None:
    """The error to show for one that the user's own code raised where torchstone calls Python or a library.

    A model file may replace `open` or a method of torch; an exit of it may pass all blocks that wait for an answer.
    """
    kind, text = type(error).__name__, printable(error)
    if isinstance(error, SystemExit | GeneratorExit):
        return InputError(f"the user's code ended the command by {kind}({text}); let it return, or raise an error")
    frames = extract_tb(error.__traceback__)
    installed = (*(get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")), "<")
    ours = str(Path(__file__).resolve().parents[1])
    if not frames or Path(frames[-1].filename).is_relative_to(ours) or frames[-1].filename.startswith(installed):
        return None
    place = f"{frames[-1].filename}:{frames[-1].lineno}"
    return InputError(
        f"the user's code at {place}, in place of a function that torchstone calls, raised {kind}: {text}"
    )


def _invoke(program: click.Command, arguments: Sequence[str], name: str, session: Session) -> object:
    """What click's own main does, but for errors: it would end the process when the reader closes the pipe."""
    if any("\0" in one for one in arguments):  # no shell passes it; functions of files raise an error of their own
        msg = "an argument contains a null byte, which no file name has"
        raise InputError(msg)
    completion = f"_{name}_COMPLETE".replace("-", "_").upper()
    if os.environ.get(completion):
        return _complete(program, name, completion)
    keep_color = session.uses_color or None  # click would take forced colour out of what goes into a pipe
    with ExitStack() as opened:
        if sys.stdout.isatty():
            opened.enter_context(fitted(get_terminal_size().columns))
        context = opened.enter_context(program.make_context(name, list(arguments), obj=session, color=keep_color))
        return program.invoke(context)


def _shortened(error: click.ClickException) -> click.ClickException:
    """The same error, its text within the limit of all errors: click quotes the whole value of an option."""
    text = error.format_message()
    return error if len(text) <= MAX_ERROR_CHARACTERS else click.UsageError(one_line(text), getattr(error, "ctx", None))


def _complete(program: click.Command, name: str, variable: str) -> int:
    code = EXIT_FINDINGS
    with suppress(KeyError, ValueError):  # what is completed stands in variables of its own
        code = shell_complete(program, {}, name, variable, os.environ[variable])
    if code != EXIT_FINE:
        msg = f"{variable} is set, but not as a shell does to complete a command; unset it"
        raise InputError(msg)
    return code


def _report(error: BaseException, session: Session) -> int:
    code = error.exit_code if isinstance(error, TorchstoneError) else EXIT_INTERNAL_ERROR
    if session.debug:
        print_exc()
    text = one_line(str(printable(error)))
    if code == EXIT_INTERNAL_ERROR:
        kind = type(error).__name__
        hint = "" if session.debug else "; run it again with --debug and report the traceback"
        echo(f"torchstone: internal error: {kind}: {text}{hint}", err=True)
    else:
        echo(f"torchstone: error: {text}", err=True)
    return code


def start(program: click.Command = cli, name: str = "torchstone") -> NoReturn:
    """Run a command as this process, which ends with its exit code."""
    gc.set_threshold(_YOUNG_OBJECTS)
    ended: list[int] = []
    atexit.register(_end_interrupted, ended)  # as the first, so that it is called last
    code = run(program=program, name=name)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            _lead_nowhere(stream)
            if stream is sys.stdout and code in (EXIT_FINE, EXIT_FINDINGS) and not isinstance(error, BrokenPipeError):
                with plain_output():
                    code = _report(refused_by_system(error), Session())
    end_soon(code)
    ended.append(code)
    sys.exit(code)


def _end_interrupted(codes: list[int]) -> None:
    """End by the exit code of an interrupt: Python would end by the signal if it had passed through C code."""
    if codes == [EXIT_INTERRUPTED]:
        os._exit(EXIT_INTERRUPTED)


def _lead_nowhere(stream: TextIO) -> None:
    """Let what is left in a stream go nowhere: Python would fail to write it at exit, with a code of its own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def main() -> NoReturn:
    """The `torchstone` command."""
    start()
