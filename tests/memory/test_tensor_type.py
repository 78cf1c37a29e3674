import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory.log_generator.tensors import Tensor
from torchstone.memory.mlir_text import elements_bytes, expand_aliases, explain_padding, read_type

shapes = st.lists(st.integers(1, 300), min_size=1, max_size=4).map(tuple)
tensors = st.one_of(
    st.builds(Tensor, shapes, st.sampled_from(["f32", "bf16", "si32", "bfp_bf8", "bfp_bf4"])),
    st.builds(
        Tensor, shapes, st.sampled_from(["f32", "bf16"]), st.sampled_from(["DRAM", "host"]), tiled=st.just(value=False)
    ),
    st.builds(Tensor, shapes, st.just("bf16"), st.just("L1"), grid=st.sampled_from([(8, 8), (1, 8), (4, 2)])),
)


@given(tensor=tensors, new_dialect=st.booleans())
def test_sizes_are_those_of_the_tensor_that_was_spelled(*, tensor: Tensor, new_dialect: bool) -> None:
    found = read_type(tensor.text(new_dialect=new_dialect))

    assert found.shape == tensor.shape
    assert found.logical_bytes == tensor.logical_bytes()
    assert found.buffer is not None
    assert found.buffer.memory == tensor.memory
    assert found.buffer.padded_bytes == tensor.padded_bytes()
    assert found.buffer.bank_bytes(banks=12) == tensor.bank_bytes(12)


@given(tensors)
def test_aliases_of_a_module_dump_mean_the_same(tensor: Tensor) -> None:
    aliases = {
        "#ttnn_layout4": tensor.layout(new_dialect=False, short_buffer=True),
        "#dram": "#ttnn.buffer_type<dram>",
        "#l1": "#ttnn.buffer_type<l1>",
        "#system_memory": "#ttnn.buffer_type<system_memory>",
    }
    assert read_type(tensor.text(layout="#ttnn_layout4"), aliases) == read_type(tensor.text())


def test_an_alias_that_is_not_known_stays() -> None:
    assert expand_aliases("tensor<1xf32, #other>", {"#dram": "x"}) == "tensor<1xf32, #other>"


@pytest.mark.parametrize("text", ["!ttnn.device", "tensor<*xf32>", "none"])
def test_what_is_no_ranked_tensor_keeps_its_text(text: str) -> None:
    found = read_type(text)

    assert (found.text, found.shape, found.buffer) == (text, None, None)


def test_a_dynamic_size_is_not_made_up() -> None:
    assert read_type("tensor<?x4xf32>").logical_bytes is None


def test_a_scalar_has_an_empty_shape() -> None:
    assert read_type("tensor<ui32>").shape == ()


def test_an_unknown_element_type_has_no_size() -> None:
    assert elements_bytes(10, "f7") is None


def test_a_long_element_counts_eight_bytes() -> None:
    assert elements_bytes(10, "i64") == 80


def test_padding_is_explained_by_the_dim_that_causes_it() -> None:
    thin = read_type(Tensor((1, 1000, 512, 2), "f32").text())

    assert explain_padding(thin) == "last dim 2 padded to 32: 16x"
    assert thin.logical_bytes == 4096000
    assert thin.buffer is not None
    assert thin.buffer.padded_bytes == 65536000


def test_padding_of_both_dims_names_both() -> None:
    assert "in all" in explain_padding(read_type(Tensor((1, 3, 5)).text()))


def test_no_padding_needs_no_words() -> None:
    assert explain_padding(read_type(Tensor((64, 64)).text())) == ""
    assert explain_padding(read_type("!ttnn.device")) == ""
