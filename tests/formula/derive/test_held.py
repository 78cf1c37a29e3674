from collections import OrderedDict

import pytest
import torch
from torch import nn

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.liveness import lives_of
from torchstone.cost.storages import find_storages
from torchstone.formula.derive.coordinates import Coordinates
from torchstone.formula.derive.held import (
    HeldSample,
    Moment,
    Pieces,
    Place,
    fullest_moments,
    held_template,
    model_type_behind,
)
from torchstone.formula.evaluating import evaluate
from torchstone.formula.parsing import parse
from torchstone.record.cost import Category
from torchstone.record.trace import Trace

WIDE: Place = ("mlp", 1, "aten.mm")
LONG: Place = ("attention", 1, "aten.bmm")
RARE: Place = ("", 1, "aten.clone")


def sample(b: int, s: int, *, dtype_bytes: int = 2, rare: int | None = None) -> HeldSample:
    """A model that holds one wide tensor at one place, and a square and two small ones at another."""
    moments = {
        WIDE: Moment(100 * b * s * dtype_bytes, {WIDE: 100 * b * s * dtype_bytes}),
        LONG: Moment(b * s * s * dtype_bytes + 8 * s, {LONG: b * s * s * dtype_bytes, RARE: 8 * s}),
    }
    if rare is not None:
        moments[RARE] = Moment(rare, {RARE: rare})
    return HeldSample(point={"B": b, "S": s}, dtype_bytes=dtype_bytes, moments=moments)


SIZES = [(3, 7), (5, 11), (13, 17), (19, 23), (2, 307), (29, 401)]
SAMPLES = [sample(b, s, dtype_bytes=size) for size in (2, 4) for b, s in SIZES]


def test_the_peak_is_the_largest_of_the_sums() -> None:
    template = held_template(SAMPLES, Coordinates())

    assert template is not None
    for one in SAMPLES:
        assert evaluate(parse(template), {**one.point, "dtype_bytes": one.dtype_bytes}) == one.peak_bytes
    assert evaluate(parse(template), {"B": 7, "S": 1000, "dtype_bytes": 2}) == 7 * 1000 * 1000 * 2 + 8000


def test_a_sum_that_is_never_the_largest_is_left_out() -> None:
    smaller = [
        HeldSample(point=one.point, dtype_bytes=2, moments={**one.moments, RARE: Moment(3, {RARE: 3})})
        for one in SAMPLES[: len(SIZES)]
    ]

    assert held_template(smaller, Coordinates()) == held_template(SAMPLES[: len(SIZES)], Coordinates())


@pytest.mark.parametrize(
    "samples",
    [
        [sample(b, s, rare=b**3 + s) for b, s in SIZES],  # no size is such a sum
        [sample(b, s) for b, s in SIZES[:3]],  # too few
        [*SAMPLES[: len(SIZES) - 1], sample(29, 401, rare=10**12)],  # a place that is reached once
        [sample(b, s, rare=b * s**3 if s > 10 else None) for b, s in SIZES],  # one that is not always reached leads
    ],
)
def test_what_is_not_sure_has_no_formula(samples: list[HeldSample]) -> None:
    assert held_template(samples, Coordinates()) is None


def test_a_class_belongs_to_a_type_of_models() -> None:
    assert model_type_behind("transformers.models.gpt2.modeling_gpt2.GPT2Model") == "gpt2"


def pieces(trace: Trace) -> Pieces:
    storages = find_storages(trace)
    lives = lives_of(trace, storages)
    counted = [category is not Category.WEIGHTS for category in storages.categories]
    return Pieces(sizes=storages.sizes, first=lives.first, last=lives.last, counted=counted)


def test_the_fullest_moment_is_the_peak_that_cost_reports() -> None:
    net = nn.Sequential(OrderedDict(layers=nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 32), nn.Linear(32, 8))))
    trace = capture(net, torch.ones(5, 8))
    moments = fullest_moments(trace, pieces(trace))
    peak = price(trace).peak

    assert max(moment.total_bytes for moment in moments.values()) == peak.activations_bytes + peak.kv_cache_bytes
    assert {place[0] for place in moments} == {"layers.*"}
    assert all(sum(moment.parts.values()) == moment.total_bytes for moment in moments.values())
