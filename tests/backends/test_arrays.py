import pytest
import torch

from torchstone.backends.arrays import array_of, tensor_of_array

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
    torch.int8, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_comes_back_from_an_array(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).to(dtype).t()

    back = tensor_of_array(array_of(tensor))

    assert back.dtype == dtype
    assert torch.equal(back.to(torch.complex64), tensor.to(torch.complex64))


@pytest.mark.parametrize("shape", [(), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scalars_and_empty_tensors_keep_their_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert tensor_of_array(array_of(torch.ones(shape, dtype=dtype))).shape == shape


def test_the_tensor_has_memory_of_its_own() -> None:
    array = array_of(torch.zeros(2))
    tensor = tensor_of_array(array)
    array[0] = 1

    assert not tensor.any()
