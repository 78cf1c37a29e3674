"""A command that judges: it sees the exported program of every graph."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchstone.backends.command import Command
from torchstone.backends.lookup import open_backend
from torchstone.backends.protocol import NotRun, OpeningFailed

ORACLE = """
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as archive:
    text = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".json"))
if b"aten.tanh" in text:
    print("no lowering for aten.tanh.default")
    sys.exit(3)
"""


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "oracle.py").write_text(ORACLE)
    return f"{sys.executable} oracle.py {{program}}"


def ran(command: str, folder: Path, module: nn.Module) -> object:
    x = torch.ones(2, 3)
    return Command(command=command, folder=str(folder)).compile(module, (x,), {})(x)


def test_what_the_command_accepts_has_the_values_of_eager(command: str, tmp_path: Path) -> None:
    assert torch.equal(torch.as_tensor(ran(command, tmp_path, nn.ReLU())), torch.ones(2, 3))


def test_what_it_refuses_fails_with_its_words_as_evidence(command: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the command fails with 3") as caught:
        ran(command, tmp_path, nn.Tanh())

    assert "no lowering for aten.tanh.default" in str(caught.value.__cause__)


def test_a_command_that_is_not_there_judges_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="the command cannot be run: no-such-program"):
        ran("no-such-program {program}", tmp_path, nn.ReLU())


def test_a_command_must_take_the_program() -> None:
    with pytest.raises(OpeningFailed, match=r"the command must have \{program\}"):
        open_backend("command", {"command": "true"})


def test_the_inputs_are_there_too(tmp_path: Path) -> None:
    code = "import json, os, sys; json.dump([os.path.getsize(one) for one in sys.argv[1:]], open('sizes', 'w'))"

    ran(f'{sys.executable} -c "{code}" {{program}} {{inputs}}', tmp_path, nn.ReLU())

    assert all(size > 0 for size in json.loads((tmp_path / "sizes").read_text()))
