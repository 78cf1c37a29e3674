from tests.cost.calls import several, signature, spec
from torchstone.formula.derive.observe import flattened, numbers_in, with_numbers
from torchstone.record.tensor import TensorSpec


def test_sizes_and_whole_arguments_are_collected_in_order() -> None:
    call = signature("aten.topk.default", several(spec(3, 2)), self=spec(3, 7), k=2, largest=True, dims=several(4, 5))

    assert numbers_in(call) == [3, 7, 2, 4, 5, 3, 2]


def test_every_number_is_exchanged_and_nothing_else() -> None:
    call = signature("aten.add.Tensor", spec(2, 3), self=spec(2, 3), alpha=1, flag=True, text="x")

    doubled = with_numbers(call, lambda number: 2 * number)

    assert numbers_in(doubled) == [4, 6, 2, 4, 6]
    assert doubled.argument("flag") is True
    assert doubled.argument("text") == "x"


def test_leading_sizes_become_what_is_repeated_and_what_is_there() -> None:
    expanded = TensorSpec(shape=(5, 3), dtype="int64", stride=(0, 1))
    call = signature("aten.embedding.default", spec(5, 3, 8), weight=spec(10, 8), indices=expanded)

    flat = flattened(call, (5, 3))

    indices = flat.argument("indices")
    assert isinstance(indices, TensorSpec)
    assert indices.shape == (5, 3)
    assert indices.stride == (0, 1)
    assert flat.output_specs[0].shape == (1, 15, 8)
    assert flat.argument("weight") == call.argument("weight")
