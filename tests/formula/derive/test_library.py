import pytest

from tests.formula.derive.benches import bench, llama_library
from torchstone.errors import InputError
from torchstone.formula.derive.library import Library, model_type_of
from torchstone.formula.derive.validate import Options, variant_of

LLAMA = "transformers.models.llama.modeling_llama"


def test_a_model_type_gives_a_formula_for_every_class_in_it() -> None:
    library = llama_library()

    assert library.refused == {}
    assert {name.rpartition(".")[2] for name in library.entries} >= {
        "LlamaAttention", "LlamaMLP", "LlamaRMSNorm", "LlamaDecoderLayer", "LlamaRotaryEmbedding", "LlamaModel",
        "LlamaForCausalLM", "Linear", "Embedding",
    }  # fmt: skip


@pytest.mark.heavy
def test_another_code_path_has_entries_of_its_own_only_where_it_costs_something_else() -> None:
    library = Library(base=llama_library())
    library.add_model("llama", bench(), lambda _: None, Options(attention="eager"))

    assert library.entries[f"{LLAMA}.LlamaAttention"].variant == "eager"
    assert library.entries[f"{LLAMA}.LlamaMLP"].variant == ""
    assert "{LlamaAttention[eager]}" in library.entries[f"{LLAMA}.LlamaDecoderLayer"].flop_analysis.formula_template


def test_a_class_belongs_to_the_model_type_of_its_folder() -> None:
    assert model_type_of(f"{LLAMA}.LlamaAttention", {"llama": 1}) == "llama"
    with pytest.raises(InputError, match="neither a class of torch"):
        model_type_of("net.Mine", {"llama": 1})


def test_the_usual_code_path_has_no_name() -> None:
    assert variant_of(Options()) == ""
    assert variant_of(Options(attention="eager", use_cache=False)) == "eager+no_cache"
