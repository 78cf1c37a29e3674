"""All stages about one model in one folder."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

import torchstone as ts
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_FINE, InputError
from torchstone.models.inputs import InputOptions
from torchstone.record import codec
from torchstone.record.analysis import UNKNOWN, Analysis, AnalysisStage, StageState
from torchstone.record.cost import CostTable
from torchstone.workflows.analyze import ANALYSIS_FILE, AnalyzeRequest, analyze
from torchstone.workflows.model_source import ModelRequest

BACKEND = '''
import torch
from torchstone.backends import Unsupported, availability_of, exported_program

class NoTanh:
    """Refuses tanh."""
    name = "notanh"
    forks = True
    def availability(self):
        return availability_of(["torch"], needs="pip install torch")
    def warm_up(self):
        pass
    def export(self, module, args, kwargs):
        return {}
    def compile(self, module, args, kwargs):
        exported = exported_program(module, args, kwargs)
        graph = exported.program.module()
        if any("tanh" in str(node.target) for node in graph.graph.nodes):
            raise Unsupported("no tanh", ops=("aten.tanh.default",))
        return exported.nested(lambda tensors: graph(*tensors))
    def reset(self):
        pass
'''
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x):
        return self.layers(x)

def load_model():
    torch.manual_seed(0)
    return Net().eval()

def get_inputs():
    return (torch.ones(2, 8),)
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("net")
    (folder / "net.py").write_text(NET, encoding="utf-8")
    (folder / "chip.py").write_text(BACKEND, encoding="utf-8")
    return folder


def _stages(analysis: Analysis) -> dict[str, AnalysisStage]:
    return {stage.name: stage for stage in analysis.stages}


def test_every_question_has_an_answer_in_the_folder(net: Path, tmp_path: Path) -> None:
    arguments = ["analyze", f"{net / 'net.py'}::load_model", "--backend", "eager", "--hardware", "n150"]
    assert run([*arguments, "--dir", str(tmp_path), "--quiet"]) == EXIT_FINE

    found = codec.load(tmp_path / ANALYSIS_FILE, Analysis)
    stages = _stages(found)
    assert found.finished
    assert found.headline == "It fits on n150 and runs on eager."
    assert list(stages) == ["structure", "cost", "fits n150", "check eager", "formula", "operators", "reference"]
    assert {stage.state for stage in found.stages} == {StageState.DONE}
    assert "108 parameters" in stages["structure"].answers[0]
    assert "6 of 6 deliverables" in stages["reference"].answers[0]
    for name in ("trace.json", "cost.json", "check.json", "ops.db", "report.html", "reference/golden_data.json"):
        assert (tmp_path / name).is_file(), name
    assert "It fits on n150 and runs on eager." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_fails_is_said_first_and_does_not_stop_the_rest(net: Path, tmp_path: Path) -> None:
    backend = f"{net / 'chip.py'}::NoTanh"
    arguments = ["analyze", f"{net / 'net.py'}::load_model", "--backend", backend, "--backend", "tt", "--quick"]
    assert run([*arguments, "--dir", str(tmp_path), "--quiet"]) == EXIT_FINDINGS

    found = codec.load(tmp_path / ANALYSIS_FILE, Analysis)
    stages = _stages(found)
    assert found.headline.startswith(f"It fails on {backend}")
    assert "tanh" in " ".join(stages[f"check {backend}"].answers)
    assert "proven" in stages[f"check {backend}"].answers[1]
    assert stages["check tt"].state is StageState.FAILED
    assert stages["reference"].state is StageState.SKIPPED
    assert stages["operators"].state is StageState.DONE


BROKEN = """
import torch
from torch import nn

def load_model():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(4, 4))

def get_inputs():
    return (torch.ones(2, 8),)
"""


def test_nothing_is_judged_from_a_forward_pass_that_ends_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    model = f"{tmp_path / 'broken.py'}::load_model"
    assert run(["analyze", model, "--hardware", "n150", "--dir", str(tmp_path / "out")]) == EXIT_FINDINGS

    found = codec.load(tmp_path / "out" / ANALYSIS_FILE, Analysis)
    stages = _stages(found)
    assert found.headline == "It fails in eager."
    assert stages["cost"].answers[0].startswith("Up to the failure: ")
    others = [one for one in found.stages if one.name not in ("structure", "cost")]
    assert {one.state for one in others} == {StageState.SKIPPED}
    assert len(found.unknown) == len(others)
    said = capsys.readouterr()
    assert "unknown: Does it fit on n150, and how fast; Does it run on " in said.out
    assert f"next: torchstone inspect {tmp_path / 'out'}" in said.out
    assert f"3 of {len(stages)}: Does it fit on n150, and how fast (about " in said.err


def test_an_exception_of_a_library_ends_one_stage_alone(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> object:
        msg = "a library\nfails"
        raise KeyError(msg)

    monkeypatch.setattr("torchstone.workflows.trace_ops.trace_ops", broken)
    arguments = ["analyze", f"{net / 'net.py'}::load_model", "--backend", "eager", "--quick", "--quiet"]
    assert run([*arguments, "--dir", str(tmp_path)]) == EXIT_FINDINGS

    stages = _stages(codec.load(tmp_path / ANALYSIS_FILE, Analysis))
    assert stages["operators"].state is StageState.FAILED
    assert "KeyError" in stages["operators"].answers[0]
    assert stages["check eager"].good
    assert stages["reference"].state is StageState.SKIPPED


@pytest.mark.heavy
def test_a_resumed_analysis_keeps_what_is_there(net: Path, tmp_path: Path) -> None:
    request = AnalyzeRequest(
        model=ModelRequest(model=f"{net / 'net.py'}::load_model"), folder=tmp_path, backends=("eager",), quick=True
    )
    first = analyze(request)
    partial = Analysis(model=first.model, request=first.request, stages=first.stages[:3])
    codec.save(tmp_path / ANALYSIS_FILE, partial)
    verdicts = (tmp_path / "unique_modules.json").read_bytes()
    assert b'"status":"success"' in verdicts
    again = analyze(replace(request, resume=True))
    assert (tmp_path / "unique_modules.json").read_bytes() == verdicts
    assert [stage.seconds for stage in again.stages[:3]] == [stage.seconds for stage in first.stages[:3]]
    assert again.finished
    with pytest.raises(InputError, match="drop --resume to begin again"):
        analyze(replace(request, resume=True, hardware=("n150",)))


@pytest.mark.heavy
def test_a_check_that_the_machine_disturbed_is_made_again(net: Path, tmp_path: Path) -> None:
    request = AnalyzeRequest(
        model=ModelRequest(model=f"{net / 'net.py'}::load_model"), folder=tmp_path, backends=("eager",), quick=True
    )
    first = analyze(request)
    disturbed = tuple(
        msgspec.structs.replace(one, good=False, answers=(*one.answers, f"{UNKNOWN} whether 3 modules run on eager."))
        if one.name == "check eager"
        else msgspec.structs.replace(one, state=StageState.DONE, good=False)
        if one.name == "reference"
        else one
        for one in first.stages
    )
    codec.save(tmp_path / ANALYSIS_FILE, Analysis(model=first.model, request=first.request, stages=disturbed))

    again = _stages(analyze(replace(request, resume=True)))
    assert again["check eager"].good
    assert again["reference"].state is StageState.SKIPPED  # answered again
    assert again["cost"].seconds == _stages(first)["cost"].seconds


def test_a_model_that_is_too_large_for_values_is_priced_and_not_run(tmp_path: Path) -> None:
    request = AnalyzeRequest(
        model=ModelRequest(model="Qwen/Qwen3-8B", options=InputOptions(seq_len=16)),
        folder=tmp_path,
        backends=("eager",),
        hardware=("n150", "p150"),
        quick=True,
    )
    stages = _stages(analyze(request))

    assert stages["fits n150"].good is False
    assert stages["fits p150"].good is True
    assert stages["check eager"].state is StageState.SKIPPED
    assert "15.3 GiB" in stages["check eager"].answers[0]


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def test_a_module_in_memory(tmp_path: Path) -> None:
    found = ts.analyze(Doubled(), torch.ones(3), tmp_path, backends=["eager"], hardware=["a100"])

    assert found.headline == "It fits on a100 and runs on eager."
    assert _stages(found)["reference"].state is StageState.DONE
    assert _stages(found)["formula"].state is StageState.SKIPPED
    prediction = codec.load(tmp_path / "cost.json", CostTable).prediction
    assert prediction is not None
    assert any("not verified by others: an analysis makes one" in note for note in prediction.notes)
    with pytest.raises(InputError, match="drop `inputs`"):
        ts.analyze("tiny:bert", torch.ones(1), tmp_path)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--hardware", "n15"), "there is no hardware 'n15'"),
        (("--backend", "aot_eagr"), "there is no backend 'aot_eagr'; did you mean aot_eager?"),
        (("--python", "env", "--hardware", "a100"), "--python executes the model on a mock board"),
    ],
    ids=["hardware", "backend", "python"],
)
def test_what_nobody_knows_is_wrong_input_and_no_answer(
    options: tuple[str, ...], expected: str, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["analyze", str(net / "net.py"), "--quick", "--dir", str(tmp_path / "out"), *options]) == EXIT_BAD_INPUT
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
