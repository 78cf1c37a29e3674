from torchstone.backends.ttnn.rebuild import fits
from torchstone.backends.ttnn.signatures import parameters_of_line

LINE = (
    "__call__(self, input_tensor: ttnn._ttnn.tensor.Tensor, dims: collections.abc.Sequence[int] = [1, 1], *, "
    "program_config: ttnn::a::B | ttnn._ttnn.c.D | None = None) -> tuple[ttnn.Tensor, int]"
)


def test_a_line_of_a_docstring_names_arguments_types_and_defaults() -> None:
    tensor, dims, config = parameters_of_line(LINE)

    assert (tensor.name, tensor.type, tensor.required, tensor.by_name_only) == ("input_tensor", "Tensor", True, False)
    assert (dims.type, dims.required) == ("Sequence[int]", False)
    assert (config.type, config.by_name_only, config.takes_none) == ("B | D | None", True, True)


def test_a_value_fits_the_types_it_can_be() -> None:
    assert fits(None, "Tensor | None")
    assert not fits(None, "bool")
    assert fits(1, "bool")
    assert not fits(2, "bool")
    assert fits({"memory": {}}, "MemoryConfig | None")
    assert not fits({"memory": {}}, "Tensor | None")
    assert fits({"enum": ["DataType", "X"]}, "DataType | None")
    assert fits({"lost": "?"}, "Conv2dConfig | None")
    assert not fits({"lost": "?"}, "int")
