import msgspec
import torch

from tests.cost.calls import trace_of
from tests.cost.devices import device
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.report.view.cost import bound_shares, signature_rows, traffic_rows

TRACE = trace_of(lambda x: torch.relu(x @ x).t(), torch.ones(64, 64))
COSTS = price(TRACE)


def test_signatures_stand_by_cost_and_views_are_left_out() -> None:
    rows = signature_rows(COSTS, TRACE)
    assert [row.op for row in rows] == ["aten.mm.default", "aten.relu.default"]
    assert rows[0].flops == 2 * 64**3
    assert rows[0].predicted_s is None


def test_a_prediction_adds_time_and_bound() -> None:
    table = msgspec.structs.replace(COSTS, prediction=predict(TRACE, COSTS, device()))
    first = signature_rows(table, TRACE)[0]
    assert first.bound == "memory"
    assert first.predicted_s is not None
    assert first.intensity == 2 * 64**3 / (3 * 64 * 64 * 4)
    assert sum(share for _, share in bound_shares(table)) == 1
    assert bound_shares(COSTS) == ()


def test_the_three_levels_of_traffic_add_up() -> None:
    for row in traffic_rows(COSTS):
        assert row.total_bytes == row.weights_bytes + row.kv_cache_bytes + row.activations_bytes
