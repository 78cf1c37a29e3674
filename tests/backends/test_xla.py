import os
from typing import Any

import pytest
import torch

from tests.backends.test_program import X, program, step
from tests.backends.xla_environment import VARIABLE, needs_xla, xla_answers
from torchstone.backends.program import program_module
from torchstone.backends.protocol import CompileFailed, Unsupported
from torchstone.backends.registry import describe
from torchstone.backends.xla import Xla, classify_error, moved_to, option_text, refuse_host_ops


@needs_xla
@pytest.mark.heavy
@pytest.mark.parametrize("path", ["lazy", "openxla"])
def test_nested_modules_run_on_the_cpu_device(path: str) -> None:
    found = xla_answers()[path]

    assert found["verdict"]["passed"], found["verdict"]["reason"]
    assert found["devices"] == ["cpu"]  # the module itself was not moved


@needs_xla
@pytest.mark.heavy
def test_the_graph_is_exported_as_stablehlo_and_hlo() -> None:
    stages = xla_answers()["lazy"]["stages"]

    assert list(stages) == ["stablehlo", "hlo"]
    assert "stablehlo.dot" in stages["stablehlo"]
    assert stages["hlo"].startswith("HloModule")


@needs_xla
@pytest.mark.heavy
def test_a_recorded_program_runs_in_another_torch() -> None:
    assert xla_answers()["program"] == {"result": [3.0, 3.0, 3.0], "device": "cpu"}


@needs_xla
@pytest.mark.heavy
def test_every_recorded_op_of_a_llama_runs_in_another_torch() -> None:
    endings = xla_answers()["recorded"]

    assert len(endings) > 40
    assert {name: ending for name, ending in endings.items() if ending != "passed"} == {}


@needs_xla
@pytest.mark.heavy
def test_an_op_that_ran_on_the_host_is_a_refusal_unless_that_is_allowed() -> None:
    assert xla_answers()["refusal"]["ops"] == ["aten.special_airy_ai.default"]
    assert "ran it on the host" in xla_answers()["refusal"]["message"]
    assert "result" in xla_answers()["fallback"]


@needs_xla
@pytest.mark.heavy
def test_compile_options_are_refused_where_torch_xla_takes_none() -> None:
    assert "takes no compile options" in xla_answers()["compile_options"]


@needs_xla
@pytest.mark.heavy
def test_another_interpreter_says_that_it_can_run_it() -> None:
    facts = describe("xla", python=os.environ[VARIABLE])

    assert facts.usable
    assert "torch_xla 2.9.0" in facts.version


def test_host_ops_are_named_once_they_are_counted_more_often() -> None:
    refuse_host_ops({"aten::histc": 2}, {"aten::histc": 2})

    with pytest.raises(Unsupported) as refused:
        refuse_host_ops({"aten::histc": 2}, {"aten::histc": 2, "aten::nonzero": 1}, lambda: ["aten.nonzero.default"])
    assert refused.value.ops == ("aten.nonzero.default",)
    assert str(refused.value) == "torch_xla has no rule for aten.nonzero.default and ran it on the host"


@pytest.mark.parametrize("kwargs", [{}, {"device": {"atom": {"kind": "device", "text": "cpu"}}}])
def test_a_recorded_program_makes_its_tensors_on_the_device(kwargs: dict[str, Any]) -> None:
    described = program(
        step("aten.arange.default", 3, outputs=["a"], **kwargs),
        step("aten.add.Tensor", X, {"tensor": "a"}, outputs=["t"]),
    )
    module = program_module(described)

    moved = moved_to(module, torch.device("meta"))

    assert moved(torch.ones(3, device="meta")).device.type == "meta"
    assert module(torch.ones(3)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (RuntimeError("UNIMPLEMENTED: no rule for aten::sort\nmore"), Unsupported, "no rule for aten::sort"),
        (RuntimeError("INTERNAL: Error code: 13"), CompileFailed, "Error code: 13"),
        (RuntimeError("Failed to compile the graph"), CompileFailed, "Failed to compile"),
    ],
)
def test_errors_of_the_runtime_are_told_apart(error: Exception, kind: type[Exception], said: str) -> None:
    found = classify_error(error)

    assert type(found) is kind
    assert str(found) == said


def test_an_error_of_the_run_is_its_own() -> None:
    assert classify_error(ValueError("mat1 and mat2 do not fit")) is None


def test_options_are_written_as_plugins_read_them() -> None:
    assert [option_text(value) for value in (True, 2, "bfp_bf8")] == ["true", "2", "bfp_bf8"]


@pytest.mark.skipif(Xla().availability().usable, reason="torch_xla is installed")
def test_without_torch_xla_it_says_what_to_install() -> None:
    found = Xla().availability()

    assert found.reason == "torch_xla not installed"
    assert "torch_xla==" in found.needs
