"""What needs no torch needs no POSIX either: it starts where these modules do not exist, as on Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses")
HEAVY = ("torch", "transformers", "numpy")
COMMANDS = (
    "inspect gpt2", "cost gpt2 --hardware n150", "cost gpt2 --by formula", "cost gpt2 --dir before",
    "cost gpt2 --dir after", "diff before after --dir changes", "report changes", "formula show LlamaAttention",
    "formula list", "formula eval torch.nn.Linear batch_elements=2 input_features=3 output_features=4",
    "models", "hardware", "cache info", "completion bash", "db info", "ops", "--help", "check --help",
    "serve --help", "memory --help",
)  # fmt: skip
PROGRAM = """
import sys
for name in {absent!r}:
    sys.modules[name] = None
import os
from torchstone import temporary
from torchstone.record import folder_lock
class Elsewhere:
    name = "nt"
    __getattr__ = staticmethod(lambda name: getattr(os, name))
folder_lock.os = temporary.os = Elsewhere()  # what it does where a folder cannot be locked
from torchstone.cli.main import run
ended = {{line: run(line.split()) for line in {commands!r}}}
bad = {{line: code for line, code in ended.items() if code not in (0, 2 if line in ("db info", "ops") else 0)}}
sys.exit(str(bad) if bad else 0)
"""


def test_commands_that_need_no_torch_need_no_posix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(tmp_path / "cache"))
    program = PROGRAM.format(absent=(*POSIX, *HEAVY), commands=COMMANDS)

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
