from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.database_entries import text_of
from torchstone.formula.derive.fit import merge_dtypes

N = Polynomial.unknown("n")


def times(number: int) -> Polynomial:
    return Polynomial.constant(number) * N


def test_what_doubles_with_the_element_grows_with_it_and_the_rest_stays() -> None:
    forms = merge_dtypes({2: (N, times(2), times(10)), 4: (N, times(4), times(12))})

    assert [text_of(form) for form in forms] == ["${n}", "${dtype_bytes} * ${n}", "${dtype_bytes} * ${n} + 8 * ${n}"]


def test_what_shrinks_with_the_element_is_a_choice() -> None:
    _, reads, _ = merge_dtypes({2: (N, times(20), N), 4: (N, times(16), N)})

    assert reads.value({"n": 1, "dtype_bytes": 2}) == 20
    assert reads.value({"n": 1, "dtype_bytes": 4}) == 16


def test_one_type_alone_stays_as_it_is() -> None:
    assert merge_dtypes({4: (N, N, N)}) == (N, N, N)
