import torch
from torch import nn

from tests.report.reference.test_kv_cache import cache, giving, layer, output
from tests.report.traces import empty_model, transformer
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.report.reference.memory_needs import memory_needs
from torchstone.report.view.overview import totals


def test_weights_in_the_captured_type_are_those_of_the_totals_and_half_in_bfloat16() -> None:
    trace = transformer(3)

    captured, bfloat16, *_ = memory_needs(trace, price(trace), (128,))

    assert captured.captured
    assert captured.weights_bytes == totals(trace).parameter_bytes
    assert bfloat16.weights_bytes == totals(trace).parameter_bytes // 2
    assert not bfloat16.captured


def test_the_activation_peak_is_that_of_the_costs_and_scales() -> None:
    trace = transformer(3)
    costs = price(trace)

    captured, bfloat16, *_ = memory_needs(trace, costs, ())

    assert captured.activation_peak_bytes == costs.peak.activations_bytes > 0
    assert bfloat16.activation_peak_bytes == costs.peak.activations_bytes // 2


def test_the_cache_grows_with_the_length() -> None:
    trace = giving(output(cache(layer(1, 4, 16, 8))))

    captured, *_ = memory_needs(trace, price(trace), (16, 32))

    assert captured.kv_cache_bytes == {16: 2 * 4 * 16 * 8 * 4, 32: 2 * 4 * 32 * 8 * 4}


def test_no_cache_is_no_number() -> None:
    trace = transformer(1)

    assert all(row.kv_cache_bytes is None for row in memory_needs(trace, price(trace), (16,)))


def test_a_model_without_float_parameters_has_no_known_activation_peak() -> None:
    trace = empty_model()

    assert {row.activation_peak_bytes for row in memory_needs(trace, price(trace), ())} == {None}


def test_a_model_of_several_types_is_as_large_as_it_is_in_the_row_it_ran_in() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(torch.bfloat16)
    net.append(nn.LayerNorm(8))
    trace = capture(net, torch.ones(1, 8, dtype=torch.bfloat16))

    (
        captured,
        *_,
    ) = memory_needs(trace, price(trace), ())

    assert (captured.dtype, captured.captured) == ("bfloat16", True)
    assert captured.weights_bytes == 2 * 2 * (64 + 8) + 4 * (8 + 8)
