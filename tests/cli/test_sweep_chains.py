import json
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE

BACKEND = '''
from torchstone.backends.eager import Eager


class Fuses(Eager):
    """Computes relu after mm wrongly, and each of them alone correctly."""

    name = "fuses"

    def compile(self, module, args, kwargs):
        import torch

        exported = torch.export.export(module, tuple(args), strict=False).module()
        for node in exported.graph.nodes:
            before = node.args[0] if node.args else None
            if "relu" in str(node.target) and "mm" in str(getattr(before, "target", "")):
                node.target = torch.ops.aten.neg.default
        exported.recompile()
        return exported
'''
MODEL = """
import torch


class Net(torch.nn.Module):
    def forward(self, x, y):
        return torch.softmax(torch.mm(x.exp(), y).relu() + 1.0, -1)


def load_model():
    return Net()


def get_inputs():
    torch.manual_seed(0)
    return (torch.randn(4, 6), torch.randn(6, 8))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("fuses.py").write_text(BACKEND)
    return tmp_path


@pytest.mark.torch
@pytest.mark.usefixtures("folder")
def test_without_recorded_chains_the_way_to_record_them_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "-q", "net.py", "--inputs", "net.py::get_inputs", "--no-ttnn"]) == EXIT_FINE

    assert run(["sweep", "generate", "--suite", "chains", "--model", "net.py"]) == EXIT_BAD_INPUT
    assert "torchstone trace net.py --chains" in capsys.readouterr().err


@pytest.mark.heavy
def test_a_fault_of_a_fusion_is_found_by_chains_alone_and_reduced_to_the_shortest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = "fuses.py::Fuses"
    assert run(["trace", "-q", "net.py", "--inputs", "net.py::get_inputs", "--chains"]) == EXIT_FINE
    assert run(["sweep", "generate", "-q", "--all", "--dir", "ops"]) == EXIT_FINE
    assert run(["sweep", "generate", "-q", "--all", "--suite", "chains", "--dir", "chains"]) == EXIT_FINE

    assert run(["sweep", "run", "-q", "--dir", "ops", "--backend", backend]) == EXIT_FINE
    capsys.readouterr()
    assert run(["sweep", "run", "-q", "--dir", "chains", "--backend", backend, "--json"]) == EXIT_FINDINGS
    results = json.loads(capsys.readouterr().out)["results"]
    wrong = {one["op"]: one for one in results if one["outcome"] == "wrong"}
    pair = "aten.mm.default > aten.relu.default"
    assert set(wrong) == {one["op"] for one in results if pair in one["op"]}
    assert len(wrong) < len(results)
    assert run(["sweep", "retrace", "-q", "--dir", "chains"]) == EXIT_FINE
    capsys.readouterr()

    longest = max(wrong.values(), key=lambda one: len(one["op"]))
    assert run(["sweep", "repro", longest["id"], "--dir", "chains"]) == EXIT_FINE
    script = Path(capsys.readouterr().out.strip()).resolve()

    text = script.read_text(encoding="utf-8")
    assert text.count("torch.ops.aten.") == 2
    assert "softmax" not in text
    empty = folder / "empty"
    empty.mkdir()
    done = subprocess.run([sys.executable, str(script)], cwd=empty, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the backend differs from eager PyTorch" in done.stdout


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_chains_are_kept_apart_from_the_ops_of_the_database(capsys: pytest.CaptureFixture[str]) -> None:
    traced = ["trace", "-q", "net.py", "--inputs", "net.py::get_inputs", "--db"]
    assert run([*traced, "plain.db"]) == EXIT_FINE
    assert run([*traced, "chains.db", "--chains"]) == EXIT_FINE
    capsys.readouterr()

    def info(database: str) -> dict[str, object]:
        assert run(["db", "info", "--db", database, "--json"]) == EXIT_FINE
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    plain, both = info("plain.db"), info("chains.db")
    numbers = ("configurations", "operations", "sources", "calls")
    assert [plain[name] for name in numbers] == [both[name] for name in numbers]
    assert plain.get("chains", 0) == 0
    assert run(["db", "export", "all.jsonl", "--db", "chains.db", "-q"]) == EXIT_FINE
    assert run(["db", "import", "all.jsonl", "--db", "copy.db", "-q"]) == EXIT_FINE
    capsys.readouterr()
    assert info("copy.db")["chains"] == both["chains"] != 0
    assert run(["ops", "--db", "chains.db", "--json"]) == EXIT_FINE
    assert " > " not in capsys.readouterr().out
