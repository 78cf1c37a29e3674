import pytest
import torch

from torchstone.numerics.dtypes import dtype_name, dtype_named, kind_of

DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_is_found_by_its_name(dtype: torch.dtype) -> None:
    assert dtype_named(dtype_name(dtype)) is dtype
    assert dtype_named(str(dtype)) is dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_its_name_says_what_kind_of_number_it_holds(dtype: torch.dtype) -> None:
    kind = kind_of(dtype_name(dtype))

    assert (kind == "float") == dtype.is_floating_point
    assert (kind == "complex") == dtype.is_complex
    assert (kind == "bool") == (dtype is torch.bool)


@pytest.mark.parametrize("name", ["float31", "nn", "manual_seed"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"has no dtype '{name}'"):
        dtype_named(name)
