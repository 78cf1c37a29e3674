"""Data reaches a terminal as text: escape sequences in names, logs and errors are written out."""

import io
import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest

from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS, REDRAWN, PlainStream, visible
from torchstone.errors import EXIT_BAD_INPUT, EXIT_INTERNAL_ERROR, InputError
from torchstone.record import codec
from torchstone.report.text import coloured

ATTACKS = [
    "\x1b]0;title\x07", "\x1b[2J", "\x1b[1A\x1b[2K", "\x1bP+q\x1b\\", "\x9b31m", "\x07", "\x08\x08", "\rover",
    "\x7f", "\u202eevil", "\u2066x", "\u061cx", "\x00", "\x1b[31mred\x1b[0m", "\r\x1b[2Kgone", "\x1b[1;31m", "\ud800",
]  # fmt: skip


def shown(text: str, capsys: pytest.CaptureFixture[str], *, error: Exception | None = None) -> tuple[int, str, str]:
    def callback() -> None:
        if error is not None:
            raise error
        click.echo(text)

    code = run(["show"], program=click.Group(commands={"show": click.Command("show", callback=callback)}))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_control_character_of_data_reaches_the_terminal(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = shown(f"a{attack}b", capsys)

    assert all(character.isprintable() for character in out.removesuffix("\n"))


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("kind", [InputError, RuntimeError])
def test_nor_in_an_error(attack: str, kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shown("", capsys, error=kind(f"cannot read a{attack}b\nsecond line"))

    assert code == (EXIT_BAD_INPUT if kind is InputError else EXIT_INTERNAL_ERROR)
    assert out == ""
    assert all(character.isprintable() for character in err.removesuffix("\n"))


def test_an_error_has_a_limited_length(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = shown("", capsys, error=InputError("x" * 100_000))

    assert len(err) < MAX_ERROR_CHARACTERS + 100


def test_styles_and_the_line_of_progress_stay() -> None:
    assert visible(f"{coloured('bold', 'bold')} {REDRAWN}reading") == "\x1b[1mbold\x1b[0m \r\x1b[2Kreading"


def test_the_same_codes_are_written_out_where_they_come_from_data() -> None:
    assert visible("\x1b[1mbold\x1b[0m \r\x1b[2K") == r"\u001b[1mbold\u001b[0m \u000d\u001b[2K"
    assert visible(coloured("\r\x1b[2Kgone", "red")) == "\x1b[31m" + r"\u000d\u001b[2Kgone" + "\x1b[0m"


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are those of POSIX")
def test_a_terminal_gets_no_code_from_a_file(tmp_path: Path) -> None:
    trace = json.loads(codec.encode(transformer(1)))
    trace["modules"][1]["class_name"] = "a.\x1b[31mRED\x1b[0m"
    trace["modules"][2]["path"] = "\r\x1b[2Kgone"
    (tmp_path / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
    controller, terminal = os.openpty()
    program = [sys.executable, "-m", "torchstone", "inspect", str(tmp_path), "--no-color"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200", "TERM": "xterm"}
    with subprocess.Popen(program, stdout=terminal, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(terminal)
        parts = []
        with suppress(OSError):  # how Linux says that nobody writes to the terminal any more
            while part := os.read(controller, 1 << 16):
                parts.append(part)
    os.close(controller)
    shown_text = b"".join(parts).decode().replace("\r\n", "\n")

    assert process.returncode == 0
    assert r"\u001b[31mRED\u001b[0m" in shown_text
    assert "\x1b" not in shown_text
    assert "\r" not in shown_text


@pytest.mark.parametrize("attack", ATTACKS[:-1])
def test_json_stays_json_and_keeps_its_values(attack: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = shown(json.dumps({"name": attack}, ensure_ascii=False), capsys)

    assert json.loads(out) == {"name": attack}


@pytest.mark.parametrize("attack", ["\u202eevil", "\u2066x", "\u061cx", "\x7f", "\x9b31m", "a\x1b[31m"])
def test_nor_in_a_document_that_is_written_as_bytes(attack: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    document = json.dumps({"name": attack}, ensure_ascii=False).encode()
    callback = lambda: click.echo(document)  # noqa: E731 - one line is clearer
    code = run(["show"], program=click.Group(commands={"show": click.Command("show", callback=callback)}))
    out = capsysbinary.readouterr().out.decode()

    assert code == 0
    assert all(character.isprintable() for character in out.removesuffix("\n"))
    assert json.loads(out) == {"name": attack}


def test_characters_that_the_terminal_does_not_have_are_written_out() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    PlainStream(stream).write("└─ é")
    stream.flush()

    assert raw.getvalue() == b"\\u2514\\u2500 \\xe9"


def test_a_full_disk_ends_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = shown("", capsys, error=OSError(28, "No space left on device", "out/trace.json"))

    assert code == EXIT_BAD_INPUT
    assert err == (
        "torchstone: error: cannot use out/trace.json: No space left on device; run it again once that is resolved\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="the shell is that of POSIX")
@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-", ">&- 2>/dev/full", "2>/dev/full"])
@pytest.mark.parametrize(("command", "code"), [("cache info", 0), ("report nowhere", 2), ("cost", 2)])
def test_streams_that_are_closed_or_full_change_no_exit_code(streams: str, command: str, code: int) -> None:
    line = f"exec {shlex.quote(sys.executable)} -m torchstone {command} {streams}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHSTONE_CACHE": "kept"}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, env=environment, timeout=600)

    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("command", ["cache info", "models", "models --json", "completion bash"])
@pytest.mark.parametrize("streams", [">/dev/full", ">/dev/full 2>&1", "2>/dev/full"])
def test_a_result_that_cannot_be_written_is_no_success(streams: str, command: str) -> None:
    line = f"exec {shlex.quote(sys.executable)} -m torchstone {command} {streams}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHSTONE_CACHE": "kept"}
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, env=environment, timeout=600)

    assert done.returncode == (EXIT_BAD_INPUT if streams.startswith(">") else 0)
    sentence = (
        "torchstone: error: the system refused a file or process: No space left on device; run it again once that"
    )
    assert done.stderr == (f"{sentence} is resolved\n" if streams == ">/dev/full" else "")


@pytest.mark.skipif(os.name != "posix", reason="a folder in use cannot be removed elsewhere")
def test_a_current_folder_that_was_removed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert run(["models"]) == EXIT_BAD_INPUT
    assert capsys.readouterr().err == "torchstone: error: the current folder was removed; change to another one\n"
