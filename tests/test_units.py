import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.units import many, read_bytes, read_count, show_bytes, show_count, show_seconds


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
    [(0.0, "0.00 µs"), (2.5e-9, "2.50 ns"), (2.5e-6, "2.50 µs"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (1.0, "1.00 s"),
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
    ("text", "size_bytes"),
    [
        ("80GiB", 80 * 2**30),
        ("80 gib", 80 * 2**30),
        ("1.5 MB", 1_500_000),
        ("4096", 4096),
        ("1e3B", 1000),
        ("0.5KiB", 512),
        ("1_000", 1000),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size_bytes: int) -> None:
    assert read_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "80 apples", "1e999", "80G", "nan", "1.2.3"])
def test_what_is_no_size_is_none(text: str) -> None:
    assert read_bytes(text) is None


@pytest.mark.parametrize(("text", "count"), [("1.5T", 1_500_000_000_000), ("2e15", 2 * 10**15), ("1,000", 1000)])
def test_counts_are_read_as_people_write_them(text: str, count: int) -> None:
    assert read_count(text) == count
    assert read_count("1GiB") is None


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 modules"), (1, "1 module"), (2, "2 modules"), (1234, "1,234 modules")]
)
def test_a_noun_agrees_with_its_number(count: int, shown: str) -> None:
    assert many(count, "module") == shown
    assert many(count, "class", "classes").split()[1] == ("class" if count == 1 else "classes")
