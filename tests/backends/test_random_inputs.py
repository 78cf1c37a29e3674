import pytest
import torch

from torchstone.backends.program_source import random_tensor, tensor_of


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.int64, torch.bool, torch.uint8]
)
def test_the_same_seed_gives_the_same_tensor(dtype: torch.dtype) -> None:
    first, again, other = (random_tensor((5, 7), dtype, seed=seed).to(torch.complex64) for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_whole_numbers_keep_to_their_range() -> None:
    values = random_tensor((100,), torch.int64, whole=(3, 6))

    assert set(values.tolist()) == {3, 4, 5}


@pytest.mark.parametrize("stride", [(1, 4), (0, 1), (2, 1), (20, 5), (4, 1)])
def test_the_layout_is_the_one_asked_for(stride: tuple[int, int]) -> None:
    tensor = random_tensor((3, 4), stride=stride)

    assert tensor.shape == (3, 4)
    assert tensor.stride() == stride


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors_are_made(shape: tuple[int, ...]) -> None:
    assert random_tensor(shape, stride=torch.empty(shape).stride()).shape == shape


def test_a_description_in_json_makes_the_tensor() -> None:
    described = tensor_of({"shape": [2, 3], "dtype": "bfloat16", "seed": 4, "stride": [1, 2]})

    assert torch.equal(described, random_tensor((2, 3), torch.bfloat16, seed=4, stride=(1, 2)))


def test_given_values_are_taken_as_they_are() -> None:
    tensor = tensor_of({"shape": [2, 1], "dtype": "int16", "values": [5, 6]})

    assert (tensor.dtype, tensor.tolist()) == (torch.int16, [[5], [6]])


def test_values_with_a_stride_are_those_of_the_memory() -> None:
    columns = tensor_of({"shape": [2, 3], "stride": [1, 2], "values": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    repeated = tensor_of({"shape": [3, 2], "stride": [0, 1], "values": [7.0, 8.0]})

    assert (columns.tolist(), columns.stride()) == ([[1, 3, 5], [2, 4, 6]], (1, 2))
    assert repeated.tolist() == [[7, 8]] * 3


def test_a_tensor_wants_gradients_where_it_did() -> None:
    assert tensor_of({"shape": [2], "requires_grad": True}).requires_grad
    assert not tensor_of({"shape": [2], "values": [1.0, 2.0]}).requires_grad
