"""The cost of a model from stored formulas alone."""

import subprocess
import sys

import msgspec
import pytest

from torchstone.errors import InputError
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.models.inputs import InputOptions
from torchstone.record.formula import ZooFormulas
from torchstone.workflows.cost import CostRequest, cost_model
from torchstone.workflows.cost_from_formulas import ZOO_FORMULAS, cost_from_family, cost_from_formulas
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
    ("model", "options", "reason"),
    [
        (
            "facebook/bart-base",
            InputOptions(phase="decode"),
            r"no formula covers BartForConditionalGeneration\[decode\]",
        ),
        ("facebook/bart-base", InputOptions(layers=2), "holds for its default inputs and dtype alone"),
        ("facebook/bart-base", InputOptions(dtype="bfloat16"), "holds for its default inputs and dtype alone"),
        ("no/such-model", InputOptions(), "is not in the zoo"),
    ],
)
def test_what_the_formulas_do_not_cover_is_refused_with_the_way_out(
    model: str, options: InputOptions, reason: str
) -> None:
    with pytest.raises(InputError, match=reason) as raised:
        cost_from_formulas(model, options, SHIPPED)
    assert "--no-trace" in str(raised.value)


def test_a_family_formula_that_misses_a_setting_is_not_used() -> None:
    with pytest.raises(InputError, match="does not account for feed_forward_proj"):
        cost_from_family("google/flan-t5-large", InputOptions(), SHIPPED)


def test_a_zoo_model_has_a_formula_of_its_own_where_its_family_has_none() -> None:
    """FLOPs grow with the batch, and the formula is the one that was derived for this model."""
    one, two = (cost_from_formulas("bigscience/bloom-560m", InputOptions(batch_size=size), SHIPPED) for size in (1, 2))

    assert one.parameters["S"] == 128
    assert one.entry.built_by is not None
    assert one.entry.built_by.model == "bigscience/bloom-560m"
    assert 1.9 * one.flops < two.flops < 2.1 * one.flops


def test_a_formula_of_another_configuration_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.workflows.cost_from_formulas.config_digest", lambda _config: "another")
    with pytest.raises(InputError, match="no formula covers BloomForCausalLM"):
        cost_from_formulas("bigscience/bloom-560m", InputOptions(), SHIPPED)


def test_every_stored_zoo_formula_can_be_evaluated_and_is_of_a_zoo_model() -> None:
    models = msgspec.json.decode(ZOO_FORMULAS.read_bytes(), type=ZooFormulas).models

    assert len(models) >= 10
    for model, entry in models.items():
        found = cost_from_formulas(model, InputOptions(), SHIPPED)
        assert found.flops > 0
        assert entry.evidence is not None
        assert "hidden" in entry.evidence.routes


@pytest.mark.heavy
@pytest.mark.parametrize("model", ["bigscience/bloom-560m", "facebook/bart-base", "facebook/convnext-tiny-224"])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_zoo_formula_agrees_with_a_trace(model: str, batch_size: int) -> None:
    options = InputOptions(batch_size=batch_size)
    traced = cost_model(CostRequest(model=ModelRequest(model=model, options=options))).table.totals
    found = cost_from_formulas(model, options, SHIPPED)

    assert (found.flops, found.bytes_read, found.bytes_written) == (
        traced.flops, traced.bytes_read, traced.bytes_written
    )  # fmt: skip


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from torchstone.workflows.cost_from_formulas import cost_from_formulas as c; "
        "from torchstone.models.inputs import InputOptions as I; c('gpt2', I()); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("model", "seq_len"), [("gpt2", 40), ("bert-base-uncased", None), ("Qwen/Qwen3-8B", 33)])
def test_a_backward_pass_from_formulas_agrees_with_a_trace(model: str, seq_len: int | None) -> None:
    options = InputOptions(batch_size=3, seq_len=seq_len)
    traced = cost_model(CostRequest(model=ModelRequest(model=model, options=options, backward=True))).table.totals
    found = cost_from_formulas(model, options, SHIPPED, backward=True)

    assert (found.flops, found.bytes_read, found.bytes_written) == (
        traced.flops, traced.bytes_read, traced.bytes_written
    )  # fmt: skip


def test_a_tied_embedding_changes_a_backward_pass_and_not_a_forward_pass() -> None:
    """Llama has none by default; the gradient of a tied one is the sum of two."""
    assert cost_from_formulas("meta-llama/Llama-3.2-1B", InputOptions(), SHIPPED).flops
    with pytest.raises(InputError, match="tie_word_embeddings=True"):
        cost_from_formulas("meta-llama/Llama-3.2-1B", InputOptions(), SHIPPED, backward=True)


def test_a_backward_pass_is_not_answered_with_the_cost_of_a_forward_pass() -> None:
    with pytest.raises(InputError, match="backward"):
        cost_from_formulas("bigscience/bloom-560m", InputOptions(), SHIPPED, backward=True)
