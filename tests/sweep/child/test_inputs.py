from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.sweep.child.inputs import MOST_OFFSET, make_inputs, meta_inputs, offset_of


def about(*shape: int, dtype: str = "float32", stride: list[int] | None = None, **more: Any) -> dict[str, Any]:
    steps = torch.empty(shape, device="meta").stride()
    told = {"shape": list(shape), "dtype": dtype, "stride": stride or list(steps), "offset": 0, "memory": 0}
    facts = more.pop("facts", None)
    return {**told, **more, "facts": facts}


def only(description: dict[str, Any]) -> torch.Tensor:
    (made,) = make_inputs([description], seed=1)
    return made


def test_a_tensor_lies_as_it_lay() -> None:
    made = only(about(3, 4, stride=[1, 8], offset=5))

    assert (tuple(made.shape), made.stride(), made.storage_offset()) == ((3, 4), (1, 8), 5)


def test_the_same_seed_gives_the_same_values_and_another_gives_others() -> None:
    told = [about(50)]

    assert torch.equal(make_inputs(told, seed=1)[0], make_inputs(told, seed=1)[0])
    assert not torch.equal(make_inputs(told, seed=1)[0], make_inputs(told, seed=2)[0])


def test_tensors_that_shared_memory_share_it_again() -> None:
    one, other = make_inputs([about(4), about(2, offset=1)], seed=1)
    one[1] = 99.0

    assert other[0] == 99.0


def test_tensors_with_memory_of_their_own_do_not() -> None:
    one, other = make_inputs([about(4), about(4, memory=1)], seed=1)

    assert one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


@given(st.floats(-100, 100), st.floats(0, 100), st.sampled_from(["float32", "float64"]))
def test_floats_stay_in_the_range_that_was_seen(low: float, width: float, dtype: str) -> None:
    made = only(about(64, dtype=dtype, facts={"lowest": low, "highest": low + width, "zeros": 0.0}))

    assert float(made.min()) >= low - 1e-4
    assert float(made.max()) <= low + width + 1e-4


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_indices_stay_within_their_bounds(dtype: str) -> None:
    made = only(about(500, dtype=dtype, facts={"lowest": 3, "highest": 9}))

    assert (int(made.min()), int(made.max())) == (3, 9)


def test_integers_of_unknown_range_are_safe_indices() -> None:
    assert set(only(about(100, dtype="int64")).tolist()) == {0, 1}


def test_a_small_tensor_gets_the_very_values_it_had() -> None:
    made = only(about(2, 2, dtype="int64", stride=[1, 2], facts={"lowest": 0, "highest": 9, "values": [1, 2, 3, 4]}))

    assert made.tolist() == [[1, 2], [3, 4]]


def test_an_expanded_tensor_gets_the_values_it_had() -> None:
    made = only(about(3, 2, dtype="bool", stride=[0, 1], facts={"values": [True, False] * 3}))

    assert made.tolist() == [[True, False]] * 3


def test_the_share_of_zeros_is_that_which_was_seen() -> None:
    made = only(about(4000, facts={"lowest": 1.0, "highest": 2.0, "zeros": 0.75}))

    assert 0.7 < float((made == 0).float().mean()) < 0.8


def test_a_mask_of_infinities_has_them_again() -> None:
    made = only(about(1000, facts={"lowest": 0.0, "highest": 0.0, "has_inf": True, "zeros": 0.5}))

    assert set(made.tolist()) == {0.0, float("-inf")}


def test_a_mask_of_extreme_values_has_its_ends_and_nothing_between() -> None:
    lowest = torch.finfo(torch.float32).min
    made = only(about(100, facts={"lowest": lowest, "highest": 0.0, "zeros": 0.5}))

    assert set(made.tolist()) == {lowest, 0.0}


def test_a_tensor_that_held_nan_holds_one() -> None:
    assert bool(only(about(8, facts={"lowest": 0.0, "highest": 1.0, "has_nan": True})).isnan().any())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "complex64", "bool"])
def test_every_kind_of_element_can_be_made(dtype: str) -> None:
    assert str(only(about(4, dtype=dtype)).dtype) == f"torch.{dtype}"


def test_an_empty_tensor_is_empty() -> None:
    assert only(about(0, 4)).numel() == 0


def test_an_element_type_that_torch_does_not_have_is_named() -> None:
    with pytest.raises(TypeError, match="BFLOAT8_B"):
        make_inputs([about(2, dtype="BFLOAT8_B")], seed=0)


def test_an_offset_into_a_huge_memory_is_kept_within_a_block() -> None:
    assert offset_of({"offset": MOST_OFFSET + 67}) == (MOST_OFFSET + 67) % 64
    assert offset_of({"offset": 67}) == 67


def test_tensors_without_memory_have_the_same_geometry() -> None:
    (made,) = meta_inputs([about(3, 4, stride=[1, 3], dtype="int64")])

    assert (made.device.type, made.stride(), made.dtype) == ("meta", (1, 3), torch.int64)
