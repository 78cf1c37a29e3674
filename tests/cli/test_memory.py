import gzip
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import click
import pytest

from tests.memory.logs import log_in
from torchstone.cli import tt_memory_profiler, ttmem
from torchstone.cli.main import cli, run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def test_the_group_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("run", "show", "parse", "report", "last-run", "compare"))


def test_help_needs_neither_torch_nor_the_analysis() -> None:
    program = (
        "import sys; from torchstone.cli.main import run; run(['memory', '--help']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchstone.memory.study', 'jinja2')))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, env=environment)

    assert done.returncode == 0


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report named my-net, seen from an empty working directory."""
    monkeypatch.setenv("TTMEM_HOME", str(tmp_path / "home"))
    log, _ = log_in(tmp_path)
    assert run(["memory", "parse", str(log), "--quiet"]) == EXIT_FINE
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home" / "reports" / "my-net"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (cli, ["memory", "show", "my-net"]),
        (cli, ["memory", "parse", "my-net"]),
        (cli, ["memory", "report", "my-net"]),
        (cli, ["memory", "compare", "my-net", "my-net"]),
        (ttmem.command, ["process", "my-net"]),
        (ttmem.command, ["open", "my-net"]),
        (tt_memory_profiler.command, ["--analyze", "my-net"]),
    ],
)
def test_all_commands_tell_report_names_and_paths_apart(
    program: click.Command, arguments: list[str], report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my-net").mkdir()
    Path("my-net/trace.json").touch()
    assert run(arguments, program=program) == EXIT_FINE

    (Path("my-net") / "my-net_timeline.json.gz").write_bytes((report / "my-net_timeline.json.gz").read_bytes())
    capsys.readouterr()
    assert run(arguments, program=program) == EXIT_BAD_INPUT
    assert f"write ./my-net for the folder, or {report} for the report" in capsys.readouterr().err


def test_a_report_is_rendered_by_its_name_and_written_elsewhere_when_asked(report: Path, tmp_path: Path) -> None:
    assert run(["memory", "report", "my-net"]) == EXIT_FINE
    assert (report / "my-net_report.html").exists()

    assert run(["memory", "report", str(report), "--dir", str(tmp_path / "out")]) == EXIT_FINE
    assert (tmp_path / "out" / "my-net_report.html").exists()


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_gzip_file_is_read_as_far_as_it_goes_or_refused(tmp_path: Path, seed: int) -> None:
    whole = bytearray(gzip.compress(b"RuntimeTTNN | DEBUG | Executing operation: x\n" * 500, mtime=0))
    random = Random(seed)  # noqa: S311 - not for secrets
    for _ in range(3):
        whole[random.randrange(len(whole) // 4, len(whole))] ^= 1 << random.randrange(8)
    path = tmp_path / "run.log.gz"
    path.write_bytes(whole[:4] + random.randbytes(40) if seed < 4 else whole)

    assert run(["memory", "show", str(path)]) in (EXIT_FINE, EXIT_BAD_INPUT)
