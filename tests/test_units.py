import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.units import parse_bytes, show_bytes, show_count, show_seconds


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1536, "1.50 KiB"), (10 * 1024, "10.0 KiB"),
     (13_476_831_232, "12.6 GiB"), (2**50, "1.00 PiB"), (5000 * 2**50, "5000 PiB"), (-2048, "-2.00 KiB")],
)  # fmt: skip
def test_bytes_are_shown_in_binary_units(count: int, shown: str) -> None:
    assert show_bytes(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.00 K"), (6_738_415_616, "6.74 G"), (405_853_388_800, "406 G"),
     (10**18, "1.00 E"), (-1500, "-1.50 K")],
)  # fmt: skip
def test_counts_are_shown_in_decimal_units(count: int, shown: str) -> None:
    assert show_count(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0.00 µs"), (2.5e-6, "2.50 µs"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (1.0, "1.00 s"),
     (90.0, "90.0 s")],
)  # fmt: skip
def test_seconds_are_shown_in_a_unit_that_fits(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


@given(st.integers(min_value=0, max_value=10**20))
def test_a_shown_count_is_within_half_a_percent_of_the_count(count: int) -> None:
    number, _, unit = show_count(count).partition(" ")
    meant = float(number) * 1000 ** " KMGTPE".index(unit or " ")

    assert abs(meant - count) <= count * 0.0051


@given(st.integers(min_value=0, max_value=2**55))
def test_shown_bytes_are_within_half_a_percent_of_the_bytes(count: int) -> None:
    number, _, unit = show_bytes(count).partition(" ")
    meant = float(number) * 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)

    assert abs(meant - count) <= count * 0.0051


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("512", 512), ("2GiB", 2 << 30), ("300 MB", 300_000_000), ("1.5k", 1500), ("4KiB", 4096)]
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "many", "2XB", "-1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="2GiB"):
        parse_bytes(text)
