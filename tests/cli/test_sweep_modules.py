import json
from pathlib import Path

import pytest

from tests.cli.programs import ROOT
from tests.cli.sweeps import database
from tests.sweep.builders import mm
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINE

MODULE = """
import torch
from torchstone.sweep import MasterConfigLoader

loader = MasterConfigLoader()
parameters = {
    "model_traced": loader.get_suite_parameters("aten.mm.default", all_cases=False),
    "xfail_twice": {"input_a_shape": [(2, 2)], "input_b_shape": [(2, 2)]},
}
TIMEOUT = 20


def run(input_a_shape, input_b_shape, *, device, **rest):
    assert device == torch.device("cpu")
    a, b = torch.ones(input_a_shape), torch.ones(input_b_shape)
    return bool((a @ b == input_a_shape[1]).all()) and input_a_shape != (2, 2), "message"
"""


def test_a_sweep_module_is_generated_and_run_with_its_traced_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweeps/linear").mkdir(parents=True)
    Path("sweeps/linear/mm.py").write_text(MODULE, encoding="utf-8")
    database(Path("torchstone.db"), mm(2, 3, 4), mm(5, 6, 7))

    assert run(["sweep", "generate", "--module-name", "linear.mm", "--dir", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suites"] == {"model_traced": 2, "xfail_twice": 1}
    assert run(["sweep", "run", "--module-name", "linear.mm", "--dir", "out", "--json", "-q"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert {one["id"] for one in found["results"]} >= {mm(2, 3, 4).key, mm(5, 6, 7).key}
    assert found["counts"] == {"PASS": 2, "XFAIL": 1}


@pytest.mark.heavy
def test_the_module_of_the_guide_runs_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "coming-from" / "tt-metal-sweeps.md").read_text(encoding="utf-8")
    module = next(block for block in page.split("```") if "def run(" in block).removeprefix("python\n")
    monkeypatch.chdir(tmp_path)
    Path("sweeps/linear").mkdir(parents=True)
    Path("sweeps/linear/mm.py").write_text(module, encoding="utf-8")
    database(Path("torchstone.db"), mm(2, 3, 4), mm(5, 6, 7))

    assert run(["sweep", "generate", "--module-name", "linear.mm", "--quiet"]) == 0
    capsys.readouterr()
    assert run(["sweep", "run", "--module-name", "linear.mm", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"PASS": 2}


def test_a_module_that_asks_for_an_unknown_op_is_told_with_near_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    database(Path("torchstone.db"), mm())
    Path("mm.py").write_text(MODULE.replace("aten.mm.default", "aten.mn.default"), encoding="utf-8")

    code = run(["sweep", "generate", "--module-name", "mm.py", "--dir", "out"])

    assert code == EXIT_FINE  # its other suite has a vector
    told = capsys.readouterr()
    assert "has no configuration of 'aten.mn.default'" in told.err
    assert "near are aten.mm.default" in told.err
