"""Every argument and option of the command line that takes a file or folder, and what may be there instead of one."""

import os
import random
import re
import resource
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tests.attacks.readers import READERS
from tests.attacks.rights import without_override
from tests.cli.sweeps import unary, vectors_in
from tests.report.traces import transformer
from torchstone.cli import main, tt_memory_profiler, tt_model_analysis, ttmem
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE
from torchstone.record import codec

PROGRAMS = {
    "torchstone": main.cli,
    "ttmem": ttmem.command,
    "tt-memory-profiler": tt_memory_profiler.command,
    "tt-model-analysis": tt_model_analysis.command,
}
# In a metavar: the parameter takes a path. MODEL, RUN and NAME may be one.
_PATHS = re.compile(r"FILE|LOG|DIR|PATH|ENV|MODEL|OTHER|RUN|SCRIPT|\bA B")
_NO_PATHS = ("revision", "models", "arguments")  # `check matrix` takes what `check run` takes
_SUFFIXES = {
    "prices": ".py", "recipe": ".py", "script": ".py", "rules": ".py", "hardware": ".toml", "tolerances": ".toml",
    "source": ".log", "log": ".log", "bundle": ".zip", "bundles": ".zip", "db": ".db", "candidate": ".safetensors",
    "image": ".png", "audio": ".wav", "model": ".py", "plan": ".json", "csv": ".csv", "junit": ".xml",
}  # fmt: skip
PATIENCE_S = 600  # a command that takes longer on a busy machine waits for something that never comes
MEMORY_BYTES = 3 << 30  # that a command may take beyond what the process has


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A parameter of a command that takes a path."""

    program: str
    words: tuple[str, ...]  # of the command
    parameter: click.Parameter

    def __str__(self) -> str:
        return " ".join((self.program, *self.words, _flag(self.parameter)))

    def line(self, odd: str) -> list[str]:
        """A command line that is right but for this parameter."""
        command = PROGRAMS[self.program]
        for word in self.words:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None
            command = found
        options: list[str] = []
        arguments: list[str] = []
        for one in command.params:
            is_place = one.name == self.parameter.name
            value = odd if is_place else _usual(" ".join(self.words), one)
            if value is None:
                continue
            if isinstance(one, click.Option):
                options += [one.opts[0], value]
            else:
                arguments += [value] if one.nargs == 1 else [odd, odd] if is_place else value.split()
        return [*self.words, *options, *EXTRA.get(" ".join(self.words), ()), "--", *arguments]


# Where the rest of a command line would start something long or endless, what ends it once the paths were looked at.
EXTRA = {
    "serve": ("--host", "203.0.113.1", "--token"),  # an address that no machine has
    "memory check": ("--max-dram", "1GB"),
}
_USUAL = {
    "analyze --backend": "eager", "check run --backend": "eager", "check matrix --backend": "eager",
    "check matrix MODELS": "net.py::load_model", "reference compare FOLDER": "reference",
    "reference verify FOLDER": "reference", "reference compare CANDIDATE": "reference",
    "formula agent CLASS_PATH": "torch.nn.Tanh", "formula agent --recipe": "net.py::f", "formula agent --at": "B=2",
    "formula agent --provider": "replay", "formula derive CLASS_PATH": "torch.nn.Tanh",
    "formula diff OLD": "formulas.json", "formula diff NEW": "formulas.json", "formula eval NAME": "torch.nn.Linear",
    "formula solve NAME": "torch.nn.Linear", "formula solve PARAMETERS": "B=2 I=4", "formula solve --for": "O",
    "formula solve --memory": "1GB", "check bisect BUNDLE": "bundle.zip", "check bundle FINDING": "1",
    "check compare FOLDERS": "model other", "check export-ir --module-id": "m0",
    "check export-ir --modules-json": "modules.json", "check watch BUNDLES": "bundle.zip",
    "memory compare SOURCES": "my.log my.log", "sweep bisect VECTOR_ID": "k1-a", "sweep bisect --backend": "eager",
    "sweep compare FIRST": "r1", "sweep compare SECOND": "r2", "sweep repro VECTOR_ID": "k1-a",
    "sweep quarantine VECTOR": "aten.sin.default", "sweep quarantine --reason": "x",
    "sweep generate --op": "aten.sin.default", "sweep run --backend": "eager", "ops coverage --backend": "eager",
    "ops coverage MODEL": "x", "ttnn diff PATHS": "trace.json trace.json", "ttnn judge PATHS": "trace.json",
    "db merge OTHERS": "other.db", "db import PATHS": "master.json", "db export OUTPUT": "out.json",
    "sweep export PATH": "exported", "sweep import PATH": "tt", " --model-path": "net.py::load_model",
    " --inputs-path": "net.py::get_inputs",
}  # fmt: skip
_BY_NAME = {
    "model": "model", "source": "my.log", "log": "my.log", "folder": "out", "before": "model", "after": "other",
    "script": "script.py",
}  # fmt: skip


def _flag(parameter: click.Parameter) -> str:
    return max(parameter.opts, key=len) if isinstance(parameter, click.Option) else str(parameter.name).upper()


def _usual(words: str, parameter: click.Parameter) -> str | None:
    named = _USUAL.get(f"{words} {_flag(parameter)}")
    is_needed = parameter.required or (parameter.name == "model" and isinstance(parameter, click.Argument))
    return named if named is not None or not is_needed else _BY_NAME.get(str(parameter.name), "out")


def places() -> Iterator[Place]:
    """Every parameter that takes a path, of every command of every program."""
    for program, command in PROGRAMS.items():
        for words, one in _commands(command):
            for parameter in one.params:
                if takes_path(parameter):
                    yield Place(program=program, words=words, parameter=parameter)


def _commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, (*words, name))


def takes_path(parameter: click.Parameter) -> bool:
    """Whether a parameter may be a path: its type says so, or the word that stands for it in the help."""
    if isinstance(parameter.type, click.Path):
        return True
    is_text = isinstance(parameter.type, click.types.StringParamType)
    return is_text and parameter.name not in _NO_PATHS and _PATHS.search(parameter.metavar or "") is not None


def suffix_of(place: Place) -> str:
    """How the name of a file for this parameter usually ends."""
    return _SUFFIXES.get(str(place.parameter.name), ".json")


# --- What stands at the path instead ---


def _file(path: Path, content: bytes = b"") -> str:
    path.write_bytes(content)
    return path.name


def _device(path: Path, minor: int) -> str:
    """A device of the test's own: one of the system must not be lost to a command that replaces it."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    except PermissionError:
        path.symlink_to({3: "/dev/null", 5: "/dev/zero", 7: "/dev/full"}[minor])
    return path.name


def _sparse(path: Path) -> str:
    path.touch()
    os.truncate(path, 5 << 30)
    return path.name


def _link(path: Path, target: str) -> str:
    path.symlink_to(target)
    return path.name


def _pipe(path: Path) -> str:
    os.mkfifo(path)
    return path.name


def _socket(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)  # its whole path may be too long
    return path.name


def _folder(path: Path, files: int = 0) -> str:
    path.mkdir()
    for number in range(files):
        (path / f"{number}.json").touch()
    return path.name


def _unreadable(path: Path) -> str:
    path.write_bytes(b"{}")
    path.chmod(0)
    return path.name


def _unreadable_folder(path: Path) -> str:
    path.mkdir()
    path.chmod(0)
    return path.name


_BINARY = random.Random(0).randbytes(20_000)  # noqa: S311 - no secret
KINDS: dict[str, Callable[[Path], str]] = {
    "missing": lambda path: path.name,
    "empty text": lambda _path: "",
    "folder": _folder,
    "empty file": _file,
    "text": lambda path: _file(path, b"hello\n"),
    "pipe": _pipe,
    "socket": _socket,
    "null": lambda path: _device(path, 3),
    "zero": lambda path: _device(path, 5),
    "full": lambda path: _device(path, 7),
    "unreadable": _unreadable,
    "unreadable folder": _unreadable_folder,
    "dangling link": lambda path: _link(path, "nowhere"),
    "link to itself": lambda path: _link(path, path.name),
    "binary": lambda path: _file(path, _BINARY),
    "UTF-16": lambda path: _file(path, '{"schema": "torchstone/trace/1"}'.encode("utf-16")),
    "5 GB": _sparse,
    "newline": lambda path: _file(path.with_name(f"a\nb{path.suffix}"), b"x"),
    "escape": lambda path: _file(path.with_name(f"\x1b[31m\x1b]0;x\x07\x9b{path.suffix}"), b"x"),
    "not UTF-8": lambda path: _file(path.with_name(f"caf\udce9\udcff{path.suffix}"), b"x"),
    "direction": lambda path: _file(path.with_name(f"\u202egnp\u2066{path.suffix}"), b"x"),
    "dash": lambda path: _file(path.with_name(f"-x{path.suffix}"), b"x"),
    "spaces": lambda path: _file(path.with_name(f" a b {path.suffix}"), b"x"),
    "5,000 characters": lambda path: "x" * 5_000 + path.suffix,
    "5,000 folders": lambda path: "x/" * 2_500 + path.name,
    "null byte": lambda path: f"a\0b{path.suffix}",
    "tilde": lambda path: f"~nobody-has-this-name/{path.name}",
    "folder of a file": lambda path: f"{_file(path)}/x",
    "proc": lambda _path: "/proc/self/mem",
}
SLOW_KINDS: dict[str, Callable[[Path], str]] = {"50,000 files": lambda path: _folder(path, 50_000)}


def prepare(work: Path) -> None:
    """The inputs of usual command lines."""
    for folder, layers in (("model", 1), ("other", 2)):
        (work / folder).mkdir()
        codec.save(work / folder / "trace.json", transformer(layers))
    (work / "my.log").write_bytes(READERS["log"].corpus()[0])
    (work / "master.json").write_bytes(READERS["master"].corpus()[0])
    (work / "net.py").write_text("def load_model():\n    import torch\n    return torch.nn.ReLU()\n", encoding="utf-8")
    (work / "script.py").write_text("", encoding="utf-8")
    vectors_in(work / "out", unary("aten.sin.default"))


def odd_argument(place: Place, kind: str, work: Path) -> str:
    """Make the thing, and give what stands for it in the command line."""
    made = (KINDS | SLOW_KINDS)[kind](work / f"odd{suffix_of(place)}")
    return f"{made}::load_model" if "::" in (place.parameter.metavar or "") else made


# --- What must hold ---


class HangError(BaseException):
    """The command did not end; nothing that it catches."""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


_SENTENCES = ("torchstone: error: ", "Error: ", "no report: ")


def wrong(code: int, out: str, err: str, *, of_script: bool = False) -> Iterator[str]:
    """What must not be, whatever was given; a script has an output and exit codes of its own."""
    ran = of_script and "executing " in err
    is_known = code in (EXIT_FINE, EXIT_FINDINGS, EXIT_BAD_INPUT) and "Traceback" not in err
    if "internal error" in err or not (is_known or ran):
        yield f"exit code {code}: {err[-1500:]}"
    sentences = [line for line in err.splitlines() if line.startswith(_SENTENCES)]
    if not ran and code == EXIT_BAD_INPUT and (len(sentences) != 1 or err.splitlines()[-1] != sentences[0]):
        yield f"not one sentence: {err[-1500:]}"
    if not ran and (found := _CONTROL.search(out + err)):
        yield f"it prints {found[0]!r}: {(out + err)[max(0, found.start() - 80) : found.end() + 20]!r}"


@contextmanager
def limited() -> Iterator[None]:
    """As a user whose rights end at other users' files, with a limit of memory, and of patience."""

    def give_up(_number: int, _frame: object) -> None:
        raise HangError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, hard))
    try:
        with without_override():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problems_of(place: Place, kind: str, work: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run one case in this process, in a folder of its own; gives what was wrong."""
    prepare(work)
    line = place.line(odd_argument(place, kind, work))
    special = {path: path.lstat().st_mode for path in work.iterdir() if not (path.is_file() or path.is_dir())}
    try:
        with limited():
            code = main.run(line, program=PROGRAMS[place.program], name=place.program)
        found = list(wrong(code, *capsys.readouterr(), of_script=place.parameter.name == "script"))
    except HangError:
        found = ["it does not end"]
    if kind in ("pipe", "socket", "null", "zero", "full"):
        found += [f"{path.name} was replaced" for path, mode in special.items() if path.lstat().st_mode != mode]
    return [f"{place}: {kind}: {one}" for one in found]
