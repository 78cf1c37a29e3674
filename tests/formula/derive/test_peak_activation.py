import pytest

from torchstone.formula.derive.observe import Moment, Place
from torchstone.formula.derive.peak_activation import MemorySample, peak_sums

WIDE: Place = ("mlp", 1, "aten.mm")
LONG: Place = ("attention", 1, "aten.bmm")
RARE: Place = ("", 1, "aten.clone")


def sample(b: int, s: int, *, dtype_bytes: int = 2, rare: int | None = None) -> MemorySample:
    """A model that holds one wide tensor at one place, and a square and two small ones at another."""
    moments = {
        WIDE: Moment(100 * b * s * dtype_bytes, {WIDE: 100 * b * s * dtype_bytes}),
        LONG: Moment(b * s * s * dtype_bytes + 8 * s, {LONG: b * s * s * dtype_bytes, RARE: 8 * s}),
    }
    if rare is not None:
        moments[RARE] = Moment(rare, {RARE: rare})
    return MemorySample(point={"B": b, "S": s}, dtype_bytes=dtype_bytes, moments=moments)


SIZES = [(3, 7), (5, 11), (13, 17), (19, 23), (2, 307), (29, 401)]
SAMPLES = [sample(b, s, dtype_bytes=size) for size in (2, 4) for b, s in SIZES]


def largest(samples: list[MemorySample], **values: int) -> int:
    sums = peak_sums(samples)
    assert sums is not None
    return int(max(one.value(values) for one in sums))


def test_the_peak_is_the_largest_of_the_sums() -> None:
    for one in SAMPLES:
        assert largest(SAMPLES, **one.point, dtype_bytes=one.dtype_bytes) == one.peak_bytes
    assert largest(SAMPLES, B=7, S=1000, dtype_bytes=2) == 7 * 1000 * 1000 * 2 + 8000


def test_a_sum_that_is_never_the_largest_is_left_out() -> None:
    smaller = [
        MemorySample(point=one.point, dtype_bytes=2, moments={**one.moments, RARE: Moment(3, {RARE: 3})})
        for one in SAMPLES[: len(SIZES)]
    ]

    assert peak_sums(smaller) == peak_sums(SAMPLES[: len(SIZES)])


@pytest.mark.parametrize(
    "samples",
    [
        [sample(b, s, rare=b**3 + s) for b, s in SIZES],  # no size is such a sum
        [sample(b, s) for b, s in SIZES[:2]],  # too few
        [*SAMPLES[: len(SIZES) - 1], sample(29, 401, rare=10**12)],  # a place that is reached once
        [sample(b, s, rare=b * s**3 if s > 10 else None) for b, s in SIZES],  # one that is not always reached leads
    ],
)
def test_what_is_not_sure_has_no_formula(samples: list[MemorySample]) -> None:
    assert peak_sums(samples) is None
