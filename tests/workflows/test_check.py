from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.check import planted_net
from tests.check.held import faulty
from tests.check.results import check_result, finding
from torchstone.capture.capture_model import capture
from torchstone.check.model_setup import set_up
from torchstone.check.settings import Settings
from torchstone.errors import InputError, ModelError
from torchstone.models.inputs import InputOptions
from torchstone.record.codec import load, save
from torchstone.record.trace import Trace
from torchstone.workflows.check import (
    ANALYSIS_PAGE,
    COMPARISON_FILE,
    CheckRequest,
    capture_held_model,
    check_model,
    compare_checks,
    prices_of,
    run_requested_check,
)
from torchstone.workflows.model_source import ModelRequest

MODEL = f"{planted_net.__file__}::load_model"
COSH = {"fault": "crash", "op": "aten.cosh.default"}


class Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(7)


def held_by_its_name(model: str) -> None:
    set_up({"model": model, "inputs": None, "options": asdict(InputOptions())})


def test_each_signature_has_its_price() -> None:
    trace = capture(nn.Linear(4, 8), torch.ones(2, 4), "cpu", reuse=False)

    prices = dict(zip([one.op for one in trace.ops.signatures], prices_of(trace), strict=True))

    assert prices["aten.addmm.default"] == 2 * 2 * 4 * 8 + 2 * 8


def test_the_held_model_is_captured_on_real_tensors(tmp_path: Path) -> None:
    held_by_its_name(MODEL)

    answer = capture_held_model({"trace": str(tmp_path / "trace.json"), "command": "x"})

    trace = load(tmp_path / "trace.json", Trace)
    assert answer == {"failure": None}
    assert (trace.provenance.mode, trace.provenance.model, trace.provenance.command) == ("cpu", MODEL, "x")


def test_a_held_model_that_fails_by_itself_is_told(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("import torch\n\ndef load_model():\n    return torch.nn.Linear(3, 3), torch.ones(2)\n")
    held_by_its_name(f"{file}::load_model")

    answer = capture_held_model({"trace": str(tmp_path / "trace.json"), "command": ""})

    assert isinstance(answer["failure"], dict)
    assert "RuntimeError" in answer["failure"]["error"]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ModelRequest(model=MODEL, mode="meta"), "needs real values, which --mode meta does not have"),
        (ModelRequest(model=MODEL, backward=True), "gives no gradients that --backward could judge"),
    ],
)
def test_what_a_check_has_no_use_for_is_refused(request_: ModelRequest, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run_requested_check(CheckRequest(model=request_, settings=Settings(backend="eager")))


def test_a_finished_run_has_no_values(tmp_path: Path) -> None:
    save(tmp_path / "trace.json", capture(nn.ReLU(), torch.ones(2)))

    with pytest.raises(InputError, match="is a finished run"):
        run_requested_check(CheckRequest(model=ModelRequest(model=str(tmp_path)), settings=Settings(backend="eager")))


def test_only_a_run_with_a_folder_is_resumed() -> None:
    with pytest.raises(InputError, match="--resume needs the --dir"):
        run_requested_check(
            CheckRequest(model=ModelRequest(model=MODEL), settings=Settings(backend="eager"), resume=True)
        )


@pytest.mark.heavy
def test_a_module_in_memory_is_checked_with_its_inputs(tmp_path: Path) -> None:
    model, x = planted_net.Head(bent=True), torch.randn(2, planted_net.WIDTH)

    result = check_model(model, x, folder=tmp_path, settings=faulty(COSH))

    assert result.form == "program"
    assert [finding.ops for finding in result.findings] == [("aten.cosh.default",)]
    assert result.totals.flops
    assert (tmp_path / ANALYSIS_PAGE).is_file()


def test_a_module_that_raises_is_refused_before_any_process_starts() -> None:
    with pytest.raises(ModelError, match="the model itself fails on the CPU"):
        check_model(Raises(), torch.ones(2), backend="eager")


def test_a_trace_alone_has_no_values() -> None:
    trace = capture(nn.ReLU(), torch.ones(2), "cpu", reuse=False)

    with pytest.raises(InputError, match="a trace has no values"):
        check_model(trace, backend="eager")


def test_the_name_of_earlier_releases_is_the_same_function() -> None:
    from torchstone.check import check

    assert check is check_model


def test_checks_are_compared_and_written_to_a_folder(tmp_path: Path) -> None:
    save(tmp_path / "good" / "check.json", check_result())
    save(tmp_path / "bad" / "check.json", check_result(finding()))

    found = compare_checks([tmp_path / "good", tmp_path / "bad"], tmp_path / "page")

    assert found.worse
    assert (tmp_path / "page" / COMPARISON_FILE).is_file()


def test_one_check_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give two or more folders"):
        compare_checks([tmp_path])
