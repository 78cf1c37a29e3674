import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.errors import EXIT_INTERRUPTED

_THROUGH_C = """
import ctypes, click
from torchstone.cli.main import start

@click.command()
def command():
    names = ctypes.py_object({"__builtins__": __builtins__})
    ctypes.pythonapi.PyRun_String.restype = ctypes.py_object
    ctypes.pythonapi.PyRun_String(b"raise KeyboardInterrupt", 257, names, names)

start(command)
"""
_TAKEN_FOR_AN_ERROR = """
import click, signal
from torchstone.cli.main import start

@click.command()
def command():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("cannot load module more than once per process")

start(command)
"""


def test_python_runs_the_package_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "--version"], capture_output=True, text=True, check=True, timeout=300
    )

    assert done.stdout.startswith("torchstone")


@pytest.mark.parametrize("module", ["click", "torchstone.cli.project_settings"])
def test_an_interrupt_during_the_imports_ends_as_any_other(module: str, tmp_path: Path) -> None:
    finder = f"""
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
"""
    (tmp_path / "sitecustomize.py").write_text(finder)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "models"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "torchstone: interrupted\n")


@pytest.mark.parametrize("code", [_THROUGH_C, _TAKEN_FOR_AN_ERROR], ids=["through C code", "taken for an error"])
def test_an_interrupt_in_code_that_is_being_imported_ends_as_any_other(code: str, tmp_path: Path) -> None:
    """As in `import torch`: Python remembers one that passed through C code, and would end by the signal."""
    (tmp_path / "interrupted_command.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "interrupted_command"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )

    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "torchstone: interrupted\n")
