"""Tied embeddings are a parameter of the whole model: its weights are right with and without them."""

import pytest

from tests.formula.derive.benches import bench, llama_library
from torchstone.formula.database.compute import available_formulas, compute
from torchstone.formula.derive.derive_model import ConfiguredModel
from torchstone.formula.derive.gate import formulas_of
from torchstone.formula.derive.library import Library
from torchstone.formula.derive.tied_weights import free_tying
from torchstone.formula.derive.validate import Options
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import find_blueprint
from torchstone.record.formula import Quantity

LLAMA = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
ONE_BILLION = {  # Llama-3.2-1B
    "B": 1, "S": 128, "hidden_size": 2048, "num_heads": 32, "num_kv_heads": 8, "head_dim": 64,
    "intermediate_size": 8192, "vocab_size": 128256, "num_hidden_layers": 16, "dtype_bytes": 2,
}  # fmt: skip


@pytest.mark.parametrize(("tied", "parameters"), [(1, 1_235_814_400), (0, 1_498_482_688)])
def test_shipped_weights_of_llama_are_those_of_the_published_model(tied: int, parameters: int) -> None:
    given = {**ONE_BILLION, "tie_word_embeddings": tied}
    inverse_frequencies = 64 // 2 * 4
    weights = compute(available_formulas(), LLAMA, Quantity.WEIGHTS, given)
    assert abs(int(weights) - 2 * parameters) <= inverse_frequencies


def test_the_parameter_is_measured_on_both_sides() -> None:
    library = Library(derived=dict(llama_library().derived), entries=dict(llama_library().entries))
    blueprint = find_blueprint("tiny:llama", InputOptions())
    free_tying(library, ConfiguredModel(blueprint=blueprint, bench=bench(), options=Options()))
    entry = library.entries[LLAMA]
    assert "tie_word_embeddings" in entry.parameters(Quantity.WEIGHTS)
    formulas = formulas_of(library.entries.values())
    untied, tied = (
        int(compute(formulas, LLAMA, Quantity.WEIGHTS, {**ONE_BILLION, "tie_word_embeddings": one})) for one in (0, 1)
    )
    assert untied - tied == 2 * 2048 * 128256


def test_a_wrong_weights_formula_gets_no_parameter() -> None:
    import msgspec

    library = Library(derived=dict(llama_library().derived), entries=dict(llama_library().entries))
    entry = library.entries[LLAMA]
    assert entry.memory_analysis is not None
    wrong = msgspec.structs.replace(
        entry.memory_analysis, weights_template=f"({entry.memory_analysis.weights_template}) + 1"
    )
    library.entries[LLAMA] = msgspec.structs.replace(entry, memory_analysis=wrong)
    blueprint = find_blueprint("tiny:llama", InputOptions())
    free_tying(library, ConfiguredModel(blueprint=blueprint, bench=bench(), options=Options()))
    assert "tie_word_embeddings" not in library.entries[LLAMA].parameters(Quantity.WEIGHTS)
