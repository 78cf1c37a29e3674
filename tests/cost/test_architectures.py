"""Every architecture of the public list: everything has a price, and every sum is exact."""

import warnings

import pytest

from tests.capture.architectures import PUBLIC
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.models.load_model import load


@pytest.mark.architectures
@pytest.mark.parametrize("name", PUBLIC)
def test_everything_has_a_price_and_every_sum_is_exact(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a model's own code warns of is not tested here
        model, inputs = load(f"tiny:{name}", device="cpu")
        trace = capture(model, inputs)
    assert trace.failure is None
    table = price(trace)
    totals, root, levels = table.totals, table.modules[0], table.traffic
    assert table == price(trace.written_out()), "repeats cost what their copies cost"
    assert table.unpriced == {}
    assert sum(module.self_flops for module in table.modules) == root.flops == totals.flops > 0
    assert sum(module.self_matmul_flops for module in table.modules) == root.matmul_flops == totals.matmul_flops
    assert sum(module.self_bytes_read for module in table.modules) == root.bytes_read == totals.bytes_read
    assert sum(module.self_bytes_written for module in table.modules) == root.bytes_written == totals.bytes_written
    assert sum(levels.unfused.read_bytes.values()) == totals.bytes_read
    assert levels.unfused.total_bytes >= levels.fused.total_bytes >= levels.compulsory.total_bytes
    assert totals.peak_bytes == max(table.timeline_bytes) >= totals.parameter_bytes
