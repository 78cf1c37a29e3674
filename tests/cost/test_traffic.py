import pytest

from tests.cost.calls import signature, spec
from torchstone.cost.registry import NoPriceError, bytes_for, bytes_of, extent_bytes, reads_of, writes_of
from torchstone.record.tensor import TensorSpec


def test_an_expanded_dimension_counts_once() -> None:
    assert bytes_of(TensorSpec(shape=(5, 3), dtype="float32", stride=(0, 1))) == 12
    assert bytes_of(spec(5, 3)) == 60


def test_packed_elements_are_counted_in_bits() -> None:
    assert bytes_of(spec(5, dtype="quint4x2")) == 3
    assert bytes_for(spec(1, dtype="float8_e4m3fn"), 7) == 7


def test_an_element_type_nobody_knows_has_no_size() -> None:
    with pytest.raises(NoPriceError, match="mystery"):
        bytes_of(spec(5, dtype="mystery"))
    assert extent_bytes(spec(5, dtype="mystery")) is None


def test_the_extent_reaches_to_the_last_element() -> None:
    assert extent_bytes(TensorSpec(shape=(2, 3), dtype="float32", stride=(10, 1), storage_offset=4)) == (4 + 13) * 4
    assert extent_bytes(spec(0, 3)) == 0
    assert extent_bytes(TensorSpec(shape=(2, 3), dtype="float32", layout="sparse_coo")) is None


def test_a_buffer_for_the_result_is_written_and_not_read() -> None:
    call = signature("aten.add.out", spec(4), self=spec(4), other=spec(4), out=spec(4))
    assert reads_of(call) == (16, 16, 0)
    assert writes_of(call) == (16,)
