import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import click
import pytest

from tests.cli.programs import MAIN, torchstone
from torchstone import __version__, errors
from torchstone.cli import main
from torchstone.cli.main import COMMANDS, Entry, cli, run
from torchstone.cli.options import common_options
from torchstone.report.text import aligned


def raising(error: BaseException) -> click.Command:
    """A command that ends with an error."""

    @click.command()
    @common_options
    def command() -> None:
        raise error

    return command


def printing(text: Callable[[], str]) -> click.Command:
    """A command that prints what it works out."""

    @click.command()
    def command() -> None:
        click.echo(text())

    return command


def run_raising(error: BaseException, *arguments: str) -> int:
    group = click.Group(commands={"fail": raising(error)})
    return run(["fail", *arguments], program=group)


def test_help_lists_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == errors.EXIT_FINE
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown and entry.summary in shown for name, entry in COMMANDS.items())


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == errors.EXIT_FINE
    assert capsys.readouterr().out == f"torchstone, version {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]

    for leaf in leaves:
        assert {"--quiet", "--no-color", "--debug"} <= {word for option in leaf.params for word in option.opts}


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspcet"]) == errors.EXIT_BAD_INPUT
    assert "there is no command 'inspcet'; did you mean 'inspect'?" in capsys.readouterr().err


def test_an_unknown_command_far_from_all_gets_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["xyzzy"]) == errors.EXIT_BAD_INPUT
    assert "there is no command 'xyzzy'\n" in capsys.readouterr().err


def test_an_unknown_option_is_wrong_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "--wat"]) == errors.EXIT_BAD_INPUT
    assert "--wat" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [errors.InputError("it is wrong"), errors.ModelError("it is wrong"), errors.UnknownModelError("it is wrong"),
     errors.ModelInputsError("it is wrong"), errors.CaptureError("it is wrong"),
     errors.UnreadableFileError("it is wrong"), errors.NewerSchemaError("it is wrong")],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_wrong_input_is_one_sentence_and_exit_code_2(
    error: errors.TorchstoneError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(error) == errors.EXIT_BAD_INPUT
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "torchstone: error: it is wrong\n")


def test_a_missing_part_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.MissingExtraError(needed_for="capturing", extra="torch")

    assert run_raising(error) == errors.EXIT_BAD_INPUT
    assert "pip install 'torchstone[torch]'" in capsys.readouterr().err


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("Cannot allocate memory (os error 12)")], ids=repr)
def test_a_lack_of_memory_is_one_sentence_and_no_internal_error(
    error: MemoryError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(error) == errors.EXIT_BAD_INPUT
    reason = f" ({error})" if str(error) else ""
    sentence = f"there is not enough memory{reason}; free some, or give the command a smaller input"
    assert capsys.readouterr().err == f"torchstone: error: {sentence}\n"


@pytest.mark.parametrize("error", [errors.TorchstoneError("a bug"), ZeroDivisionError("a bug")], ids=repr)
def test_our_own_fault_is_exit_code_3_and_asks_for_the_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_raising(error) == errors.EXIT_INTERNAL_ERROR
    shown = capsys.readouterr().err
    assert shown.startswith(f"torchstone: internal error: {type(error).__name__}: a bug; run it again with --debug")
    assert "Traceback" not in shown


@pytest.mark.parametrize("error", [errors.InputError("wrong"), ZeroDivisionError("a bug")], ids=repr)
def test_debug_shows_the_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    run_raising(error, "--debug")

    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort(), EOFError()], ids=repr)
def test_an_interrupt_ends_with_130(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_raising(error) == errors.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "torchstone: interrupted\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, errors.EXIT_INTERRUPTED), (signal.SIGTERM, 143)])
def test_an_interrupt_while_an_object_is_deleted_ends_the_command(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python drops what is raised there, so that the command would go on."""

    class Deleted:
        def __del__(self) -> None:
            signal.raise_signal(number)

    @click.command()
    def command() -> None:
        Deleted()
        time.sleep(60)

    assert run(["fail"], program=click.Group(commands={"fail": command})) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["models"], ["models", "--help"], ["--help"]], ids=" ".join)
def test_nobody_reading_the_output_is_no_error(arguments: list[str]) -> None:
    """What `| head -1` does once head has seen enough."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)

    assert done.returncode == errors.EXIT_FINE
    assert "error" not in done.stderr.lower()


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (1, 1)])
def test_what_a_command_returns_is_the_exit_code(code: int | None, expected: int) -> None:
    @click.command()
    def command() -> int | None:
        return code

    assert run([], program=command) == expected


def test_main_ends_the_process_with_the_exit_code() -> None:
    assert torchstone("models", "--filter", "nothing at all", "--quiet").returncode == errors.EXIT_FINE
    assert torchstone("inspcet").returncode == errors.EXIT_BAD_INPUT


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete ")]
)
def test_a_shell_gets_its_completion(shell: str, sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TORCHSTONE_COMPLETE", f"{shell}_source")
    done = torchstone()

    assert done.returncode == errors.EXIT_FINE
    assert sign in done.stdout


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete ")]
)
def test_a_command_prints_the_completion(shell: str, sign: str) -> None:
    done = torchstone("completion", shell)
    assert done.returncode == errors.EXIT_FINE
    assert sign in done.stdout
    assert "_TORCHSTONE_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"_TORCHSTONE_COMPLETE": "bash_complete"},
        {"_TORCHSTONE_COMPLETE": "bash_complete", "COMP_WORDS": "torchstone", "COMP_CWORD": "x"},
        {"_TORCHSTONE_COMPLETE": "other_complete"},
    ],
)
def test_variables_of_completion_that_no_shell_sets_are_one_sentence(
    variables: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert run(["models"]) == errors.EXIT_BAD_INPUT
    assert capsys.readouterr() == (
        "",
        "torchstone: error: _TORCHSTONE_COMPLETE is set, but not as a shell does to complete a command; unset it\n",
    )


@pytest.mark.parametrize(
    ("words", "offered"), [("torchstone ins", "inspect"), ("torchstone inspect --uni", "--unique")]
)
def test_commands_and_options_are_completed(
    words: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TORCHSTONE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))

    assert run() == errors.EXIT_FINE
    assert capsys.readouterr().out == f"plain,{offered}\n"


def test_the_table_names_modules_that_hold_a_command() -> None:
    for name, entry in COMMANDS.items():
        assert isinstance(entry, Entry)
        assert isinstance(cli.get_command(click.Context(cli), name), click.Command)
        assert entry.summary.endswith(".")
    assert main.__doc__


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals here")
@pytest.mark.parametrize("columns", [60, 200])
def test_tables_fit_into_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    table = printing(lambda: aligned([(100 * "x", "1,024")], right=(1,)))
    terminal, written = os.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as shown, os.fdopen(written, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        code = run(["tables"], program=click.Group(commands={"tables": table}))
        stdout.flush()
        lines = shown.read(4096).decode().splitlines()

    assert code == 0
    assert max(map(len, lines)) == min(columns, len(f"{100 * 'x'}  1,024"))


@pytest.mark.skipif(os.name != "posix", reason="the signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_asks_to_end_tidies_up(number: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    tidied = []

    @click.command()
    def ends() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            os.kill(os.getpid(), number)  # a second one does not stop the tidying
            tidied.append(number)

    assert run([], program=ends) == code
    assert tidied == [number]
    assert capsys.readouterr().err == "torchstone: terminated\n"
    assert signal.getsignal(number) is signal.SIG_DFL
