import os
import subprocess
import sys

import pytest

from torchstone.cli.main import run


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
