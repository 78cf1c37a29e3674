import sys
from pathlib import Path

import msgspec
import pytest

from tests.capture.ttnn_standin import write_ttnn
from torchstone.capture.trace_child import main, trace
from torchstone.capture.trace_program import REFUSAL, TraceRequest
from torchstone.configs.ttnn_operations import with_ttnn_calls
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.record.codec import load
from torchstone.record.config import OpLog, SourceEnding, TargetKind, TracedSource
from torchstone.record.op import Phase

NET = """
import torch

def load_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())

def get_inputs():
    return torch.ones(4, 3)
"""

TTNN_NET = """
import torch
import ttnn

class Net(torch.nn.Module):
    def forward(self, x):
        ttnn.relu(ttnn.Tensor(*x.shape))
        return x.neg()

def load_model():
    ttnn.add(ttnn.Tensor(1), ttnn.Tensor(1))
    return Net()

def get_inputs():
    return torch.ones(4, 3)
"""


def request(tmp_path: Path, text: str, *, backward: bool = False) -> TraceRequest:
    """A request to trace a model in a file."""
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    return TraceRequest(
        kind=TargetKind.MODEL,
        target=f"{tmp_path / 'net.py'}::load_model",
        run="1",
        looks=8,
        backward=backward,
        log=str(tmp_path / "log.json"),
    )


def only(log: OpLog) -> TracedSource:
    (source,) = log.sources
    return source


def test_a_model_is_traced_with_its_name_and_module_paths(tmp_path: Path) -> None:
    asked = request(tmp_path, NET)
    log = trace(asked)

    source = only(log)
    assert source.ending is SourceEnding.PASSED
    places = {one.configuration.op: one.occurrences[0] for one in source.configurations}
    assert places["aten.addmm.default"].module_path == "0"
    assert {place.model for place in places.values()} == {asked.target}
    assert log.roles["aten.t.default"] == "view"
    assert {place.phase for place in places.values()} == {Phase.FORWARD}


def test_the_backward_pass_is_traced_where_asked_for(tmp_path: Path) -> None:
    source = only(trace(request(tmp_path, NET, backward=True)))

    ops = {one.configuration.op for one in source.configurations}
    assert "aten.threshold_backward.default" in ops


def test_a_model_that_raises_is_told_with_what_it_did_before(tmp_path: Path) -> None:
    source = only(trace(request(tmp_path, NET.replace("torch.ones(4, 3)", "torch.ones(4, 5)"))))

    assert source.ending is SourceEnding.FAILED
    assert "RuntimeError" in source.detail
    assert source.calls > 0


def test_the_log_is_written_where_the_request_says(tmp_path: Path) -> None:
    asked = request(tmp_path, NET)
    (tmp_path / "request.json").write_bytes(msgspec.json.encode(asked))

    assert main(str(tmp_path / "request.json")) == EXIT_FINE
    assert load(Path(asked.log), OpLog).run == "1"


def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(request(tmp_path, NET), target="no-such-model")
    (tmp_path / "request.json").write_bytes(msgspec.json.encode(asked))

    assert main(str(tmp_path / "request.json")) == EXIT_BAD_INPUT
    assert "no-such-model" in Path(asked.log).with_name(REFUSAL).read_text()
    assert not Path(asked.log).exists()


def test_the_operations_of_ttnn_that_a_model_calls_are_named_after_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ttnn", None)  # given back afterwards: none
    monkeypatch.delitem(sys.modules, "ttnn")
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", "")
    monkeypatch.syspath_prepend(write_ttnn(tmp_path / "site"))
    asked = msgspec.structs.replace(request(tmp_path, TTNN_NET), ttnn=str(tmp_path / "calls"))

    log = trace(asked)

    monkeypatch.delitem(sys.modules, "ttnn.operation_tracer")
    with_both, unread = with_ttnn_calls(log, tmp_path / "calls")
    ops = {one.configuration.op: one.occurrences[0] for one in only(with_both).configurations}
    assert (ops["ttnn.relu"].model, ops["ttnn.relu"].run) == (asked.target, "1")
    assert "ttnn.add" not in ops  # called before the model ran
    assert log.versions["ttnn"] == "0.0.standin"
    assert (log.notes, unread) == ((), ())
