import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.traces import spec
from torchstone.record.tensor import TensorSpec, TensorTable, element_bits


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", 32), ("bfloat16", 16), ("bool", 8), ("complex128", 128), ("quint4x2", 4), ("uint1", 8),
     ("float8_e4m3fn", 8), ("float4_e2m1fn_x2", 8)],
)  # fmt: skip
def test_the_size_of_an_element_is_known(dtype: str, bits: int) -> None:
    assert element_bits(dtype) == bits


def test_every_element_type_of_torch_is_known_with_its_size() -> None:
    torch = pytest.importorskip("torch")
    packed = {"quint4x2", "quint2x4"}
    dtypes = {
        str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)
    }

    unknown = {name for name in dtypes if element_bits(name) is None}
    wrong = {
        name
        for name, dtype in dtypes.items()
        if name not in packed | unknown and element_bits(name) != 8 * dtype.itemsize
    }

    assert (unknown, wrong) == (set(), set())


def test_a_type_nobody_knows_has_no_size_rather_than_none_at_all() -> None:
    assert spec(4, dtype="a_type_of_tomorrow").size_bytes is None


@pytest.mark.parametrize(
    ("shape", "dtype", "size_bytes"),
    [((), "float32", 4), ((0, 5), "float32", 0), ((3,), "quint4x2", 2), ((2, 3), "bfloat16", 12), ((9,), "quint2x4", 3),
     ((2**40, 2**20), "float64", 2**63)],
)  # fmt: skip
def test_bytes_are_whole_and_never_overflow(shape: tuple[int, ...], dtype: str, size_bytes: int) -> None:
    assert TensorSpec(shape=shape, dtype=dtype).size_bytes == size_bytes


@given(st.lists(st.integers(min_value=1, max_value=100), max_size=4))
def test_elements_are_the_product_of_the_shape(sizes: list[int]) -> None:
    one_more = TensorSpec(shape=(*sizes, 2), dtype="int8")

    assert one_more.elements == 2 * TensorSpec(shape=tuple(sizes), dtype="int8").elements


@pytest.mark.parametrize(
    ("dtype", "short"),
    [("float32", "f32[1,8]"), ("bfloat16", "bf16[1,8]"), ("int64", "i64[1,8]"), ("uint8", "u8[1,8]"),
     ("complex64", "c64[1,8]"), ("bool", "bool[1,8]"), ("float8_e5m2", "f8_e5m2[1,8]")],
)  # fmt: skip
def test_the_short_form_is_that_of_compilers(dtype: str, short: str) -> None:
    assert spec(1, 8, dtype=dtype).short == short


def test_the_long_form_is_that_of_torch() -> None:
    assert str(spec(1, 8)) == "float32[1, 8]"


def test_a_view_is_a_tensor_of_its_own_in_the_same_memory() -> None:
    table = TensorTable(specs=(spec(4), spec(2, 2)), spec_of=(0, 1), storage_of=(7, 7))

    assert len(table) == 2
    assert (table[1].index, table[1].spec, table[1].storage) == (1, spec(2, 2), 7)
    assert table[-1] == table[1]
    with pytest.raises(IndexError):
        table[2]


@pytest.mark.parametrize(
    ("shape", "stride", "expected"),
    [
        ((2, 3), (3, 1), True),
        ((2, 1), (1, 77), True),
        ((2, 3), (1, 2), False),
        ((), (), True),
        ((0, 3), (3, 1), True),
        ((0, 3), (1, 9), True),
        ((4, 3), (0, 1), False),
        ((2, 3), (4, 1), False),
    ],
)
def test_contiguous_means_row_by_row_without_gaps(
    shape: tuple[int, ...], stride: tuple[int, ...], *, expected: bool
) -> None:
    assert TensorSpec(shape=shape, dtype="float32", stride=stride).is_contiguous is expected
