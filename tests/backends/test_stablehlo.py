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
from torchstone.backends.stablehlo import StableHlo, overloads_that_torch_dropped

installed = StableHlo().availability().usable
needs_it = pytest.mark.skipif(
    not installed, reason="the extra stablehlo is not installed; `make test-backends` does it"
)
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


@pytest.fixture(scope="module")
def backend() -> StableHlo:
    opened = StableHlo()
    opened.warm_up()
    return opened


@needs_it
@pytest.mark.heavy
def test_it_runs_what_eager_runs(backend: StableHlo) -> None:
    check_nested_inputs_and_outputs(backend)
    check_element_types(backend, torch.bfloat16)
    check_other_values(backend)
    check_empty_tensors(backend)
    backend.reset()


@needs_it
@pytest.mark.heavy
def test_the_text_is_its_own(backend: StableHlo) -> None:
    stages = exported_text(backend)

    assert list(stages) == ["stablehlo"]
    assert "stablehlo.dot_general" in stages["stablehlo"]


@needs_it
@pytest.mark.heavy
def test_an_op_without_a_rule_is_a_refusal_that_names_it(backend: StableHlo) -> None:
    assert refusal_of_an_unknown_op(backend).ops == ("aten.special_airy_ai.default",)


def test_dropped_overloads_exist_only_while_torchax_is_imported() -> None:
    with overloads_that_torch_dropped():
        assert str(torch.ops.aten.prod.no_such_dimname) == "aten.prod.no_such_dimname"
        with pytest.raises(AttributeError):
            _ = torch.ops.aten.prod.no_such_overload

    with pytest.raises(AttributeError):
        _ = torch.ops.aten.prod.no_such_dimname


@pytest.mark.skipif(installed, reason="the extra stablehlo is installed")
def test_where_it_is_not_installed_it_says_what_to_install() -> None:
    found = StableHlo().availability()

    assert not found.usable
    assert found.reason.endswith("not installed")
    assert found.needs == "pip install 'torchstone[stablehlo]'"
