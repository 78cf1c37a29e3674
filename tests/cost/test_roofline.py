import pytest
import torch
from torch import nn

from tests.cost.calls import trace_of
from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.record.cost import Bound, Conventions, Prediction
from torchstone.record.trace import Trace


def prediction(trace: Trace, **changes: object) -> Prediction:
    return predict(trace, price(trace), device(**changes))


def test_an_op_takes_as_long_as_its_worst_limit() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(512, 512))
    work, moved = 2 * 512**3, 3 * 512 * 512 * 4
    slow_memory = prediction(trace).signatures[0]
    fast_memory = prediction(trace, memory_bytes_per_s=1e15).signatures[0]
    slow_launch = prediction(trace, launch_s=1.0).signatures[0]
    assert slow_memory is not None
    assert fast_memory is not None
    assert slow_launch is not None
    assert [one.bound for one in (slow_memory, fast_memory, slow_launch)] == [Bound.MEMORY, Bound.COMPUTE, Bound.LAUNCH]
    assert slow_memory.seconds == pytest.approx(moved / 1e9)
    assert fast_memory.seconds == pytest.approx(work / 1e12)
    assert slow_launch.seconds == 1.0
    assert slow_memory.intensity == work / moved


def test_multiply_adds_take_as_long_as_the_flops_they_stand_for() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(64, 64))
    fast = device(memory_bytes_per_s=1e15, launch_s=0.0)
    in_macs = predict(trace, price(trace, Conventions(multiply_add=1)), fast)
    assert in_macs.total_s == pytest.approx(predict(trace, price(trace), fast).total_s)


def test_the_whole_is_the_sum_of_its_ops_and_the_root_of_the_tree() -> None:
    trace = capture(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), torch.ones(4, 64))
    found = prediction(trace)
    assert found.total_s == pytest.approx(sum(found.by_bound_s.values()))
    assert found.modules_s[0] == pytest.approx(found.total_s)
    assert found.ideal_s <= found.fused_s <= found.total_s + 1e-12


def test_views_take_no_time() -> None:
    assert prediction(trace_of(lambda x: x.t()[1:], torch.ones(8, 8))).total_s == 0


def test_a_rate_that_is_missing_is_stood_in_for_and_said() -> None:
    trace = trace_of(lambda x: x @ x, torch.ones(8, 8, dtype=torch.bfloat16))
    assert prediction(trace).notes == ("round has no rate for bfloat16: that of float32 was taken",)


def test_a_model_fits_or_not_and_the_batch_that_would_is_estimated() -> None:
    trace = trace_of(lambda x: x + 1, torch.ones(10, 1000))
    roomy, tight = prediction(trace), prediction(trace, memory_bytes=40_000)
    assert (roomy.fits, tight.fits) == (True, False)
    assert roomy.largest_batch == 10**9 * 10 // 80_000
    assert tight.largest_batch == 5


def test_an_op_without_a_price_has_no_time() -> None:
    from tests.cost.test_pricing import custom_op_trace

    trace = custom_op_trace()
    assert prediction(trace).signatures[0] is None


def test_memory_that_is_only_set_aside_takes_no_time() -> None:
    assert prediction(trace_of(torch.empty_like, torch.ones(8, 8))).total_s == 0


def test_the_states_of_an_optimiser_are_held_as_well() -> None:
    trace = capture(nn.Linear(8, 8), torch.ones(4, 8), backward=True)
    table = price(trace)
    tight = device(memory_bytes=table.peak.total_bytes)
    assert predict(trace, table, tight).fits
    with_states = predict(trace, table, tight, states_bytes=512)
    assert (with_states.fits, with_states.peak_bytes) == (False, table.peak.total_bytes + 512)


@pytest.mark.parametrize("backward", [False, True])
def test_the_largest_batch_fits_and_one_more_does_not(backward: bool) -> None:  # noqa: FBT001 - a case
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 16))
    small = device(memory_bytes=1_000_000)

    def prediction(batch: int) -> Prediction:
        trace = capture(model, torch.ones(batch, 64), backward=backward)
        return predict(trace, price(trace), small)

    largest = prediction(2).largest_batch
    assert largest is not None
    assert prediction(largest).fits
    assert not prediction(largest + 1).fits
