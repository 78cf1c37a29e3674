"""The backend that a page of the docs shows, used as the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchstone.backends.graphs import hand_over
from torchstone.backends.lookup import open_backend
from torchstone.backends.protocol import Unsupported
from torchstone.cli.main import run

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "add-a-backend.md"
BACKEND, HAND_OVER, COMPARISON = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def _page_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_backend.py").write_text(BACKEND, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_the_command_of_the_page_says_that_it_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["backends", "my_backend.py::TinyChip"]) == 0
    assert "my_backend.py::TinyChip  file    yes" in capsys.readouterr().out


def test_the_comparison_of_the_page_ends_as_the_page_says() -> None:
    Path("compare.py").write_text(COMPARISON, encoding="utf-8")

    done = subprocess.run([sys.executable, "compare.py"], capture_output=True, text=True, check=True, timeout=600)

    state, pcc, largest, by_pcc = done.stdout.split()
    assert (state, by_pcc) == ("wrong", "passed")
    assert 0.99 < float(pcc) < 1
    assert 0 < float(largest) < 0.03


def test_an_op_that_the_chip_does_not_know_is_refused_by_name() -> None:
    backend = open_backend("my_backend.py::TinyChip")

    with pytest.raises(Unsupported) as refused:
        backend.compile(torch.nn.LayerNorm(4), (torch.ones(2, 4),), {})
    assert refused.value.ops == ("aten.layer_norm.default",)


def test_its_text_can_be_read() -> None:
    backend = open_backend("my_backend.py::TinyChip")

    assert "aten.linear" in backend.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {})["aten"]


def test_the_graph_of_the_page_is_handed_over() -> None:
    Path("own_graph.py").write_text(f"from torchstone.backends import ReceivedGraph\n{BACKEND}", encoding="utf-8")
    text = Path("own_graph.py").read_text(encoding="utf-8")
    Path("own_graph.py").write_text(
        text.replace("    def reset(self):", f"{HAND_OVER}\n    def reset(self):"), encoding="utf-8"
    )

    found = hand_over(open_backend("own_graph.py::TinyChip"), torch.nn.ReLU(), (torch.ones(2),), {})

    assert found is not None
    assert found.kind == "own"
    assert "aten.relu.default" in found.graphs[0].module.code
