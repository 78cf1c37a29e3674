import pytest
import torch

from tests.backends.conformance import (
    check_element_types,
    check_empty_tensors,
    check_nested_inputs_and_outputs,
    check_other_values,
    exported_text,
    refusal_of_an_unknown_op,
)
from torchstone.backends.openvino import OpenVino, telling_line

installed = OpenVino().availability().usable
needs_it = pytest.mark.skipif(not installed, reason="the extra openvino is not installed; `make test-backends` does it")
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


@pytest.fixture(scope="module")
def backend() -> OpenVino:
    opened = OpenVino()
    opened.warm_up()
    return opened


@needs_it
@pytest.mark.heavy
def test_it_runs_what_eager_runs(backend: OpenVino) -> None:
    check_nested_inputs_and_outputs(backend)
    check_element_types(backend, torch.bfloat16)
    check_other_values(backend)
    check_empty_tensors(backend)
    backend.reset()


@needs_it
@pytest.mark.heavy
def test_the_text_is_its_own(backend: OpenVino) -> None:
    stages = exported_text(backend)

    assert list(stages) == ["xml"]
    assert "MatMul" in stages["xml"]


@needs_it
@pytest.mark.heavy
def test_an_op_without_a_rule_is_a_refusal_that_names_it(backend: OpenVino) -> None:
    assert refusal_of_an_unknown_op(backend).ops == ("aten.special_airy_ai.default",)


def test_its_messages_are_told_without_the_places_in_its_sources() -> None:
    error = RuntimeError("Exception from src/core/x.cpp:134:\nCheck 'a' failed at src/y.cpp:9:\nshapes do not fit\n")

    assert telling_line(error) == "shapes do not fit"
    assert telling_line(RuntimeError("")) == "RuntimeError"


@pytest.mark.skipif(installed, reason="the extra openvino is installed")
def test_where_it_is_not_installed_it_says_what_to_install() -> None:
    found = OpenVino().availability()

    assert not found.usable
    assert found.reason.endswith("not installed")
    assert found.needs == "pip install 'torchstone[openvino]'"
