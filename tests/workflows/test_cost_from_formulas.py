"""The cost of a model from stored formulas alone."""

import subprocess
import sys

import pytest

from torchstone.errors import InputError
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.models.inputs import InputOptions
from torchstone.workflows.cost import CostRequest, cost_model
from torchstone.workflows.cost_from_formulas import cost_from_formulas
from torchstone.workflows.model_source import ModelRequest

SHIPPED = Formulas(entries=load_shipped().modules)


def test_a_model_of_the_zoo_is_priced_at_its_published_configuration() -> None:
    found = cost_from_formulas("meta-llama/Llama-2-7b-hf", InputOptions(batch_size=1, seq_len=128), SHIPPED)
    assert round(found.flops / 1e12, 2) == 1.70
    assert found.parameters["num_hidden_layers"] == 32


def test_names_of_other_families_are_understood() -> None:
    assert cost_from_formulas("gpt2", InputOptions(), SHIPPED).parameters["hidden_size"] == 768


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("model", ["gpt2", "google-t5/t5-small"])
def test_it_agrees_with_a_trace_of_the_same_model_in_the_default_and_in_a_named_dtype(
    model: str, dtype: str | None
) -> None:
    options = InputOptions(dtype=dtype)
    traced = cost_model(CostRequest(model=ModelRequest(model=model, options=options))).table.totals

    found = cost_from_formulas(model, options, SHIPPED)

    assert (found.flops, found.bytes_read, found.bytes_written) == (
        traced.flops, traced.bytes_read, traced.bytes_written
    )  # fmt: skip


def test_a_dtype_of_unknown_size_is_refused() -> None:
    with pytest.raises(InputError, match="float8_e4m3fn is not known without torch"):
        cost_from_formulas("gpt2", InputOptions(dtype="float8_e4m3fn"), SHIPPED)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("facebook/opt-125m", "no formula covers OPTForCausalLM"),
        ("no/such-model", "is not in the zoo"),
        ("google/flan-t5-large", "does not account for feed_forward_proj"),
    ],
)
def test_what_the_formulas_do_not_cover_is_refused_with_the_way_out(model: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as raised:
        cost_from_formulas(model, InputOptions(), SHIPPED)
    assert "--no-trace" in str(raised.value)


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from torchstone.workflows.cost_from_formulas import cost_from_formulas as c; "
        "from torchstone.models.inputs import InputOptions as I; c('gpt2', I()); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
