import msgspec
import pytest

from tests.cost.devices import device
from torchstone.record.codec import decode, encode
from torchstone.record.cost import (
    Category,
    Conventions,
    CostSweep,
    Hardware,
    SweepPoint,
    Totals,
    Traffic,
    TrafficLevels,
)


def test_all_bytes_moved_are_those_read_and_written() -> None:
    traffic = Traffic(read_bytes={Category.WEIGHTS: 3, Category.KV_CACHE: 4}, written_bytes={Category.ACTIVATIONS: 5})
    assert traffic.total_bytes == 12


def test_conventions_are_written_out_even_where_they_are_the_usual_ones() -> None:
    document = msgspec.json.decode(msgspec.json.encode(Conventions()))
    assert (document["multiply_add"], document["causal"]) == (2, "full")


@pytest.mark.torch
def test_the_document_of_a_table_has_the_keys_that_programs_rely_on() -> None:
    from torch import nn

    from tests.cost.test_rollup import table_of

    document = msgspec.json.decode(encode(table_of(nn.Identity())))
    assert document["schema"] == "torchstone/cost/1"
    assert document["totals"].keys() >= {
        "flops", "matmul_flops", "bytes_read", "bytes_written", "peak_bytes", "parameter_bytes",
    }  # fmt: skip
    assert document["unpriced"] == {}
    assert document["modules"][0].keys() >= {"path", "class", "flops", "self_flops", "bytes_read", "bytes_written"}
    assert "conventions" in document


def test_a_device_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(device()), type=Hardware) == device()


def sweep_of(*values: int, hardware: str = "") -> CostSweep:
    """A model that does as many FLOPs as its size squared."""
    return CostSweep(
        model="tiny:llama",
        parameter="seq_len",
        conventions=Conventions(),
        hardware=hardware,
        points=tuple(_point(value, predicted=bool(hardware)) for value in values),
    )


def _point(value: int, *, predicted: bool) -> SweepPoint:
    moved = Traffic(
        read_bytes=dict.fromkeys(Category, value), written_bytes=dict.fromkeys(Category, 0)
    )  # as many bytes of each kind as the size
    return SweepPoint(
        value=value,
        totals=Totals(
            flops=value**2, matmul_flops=value, bytes_read=3 * value, bytes_written=0, peak_bytes=10 * value,
            parameter_bytes=0, op_calls=1, unpriced_calls=0,
        ),
        traffic=TrafficLevels(unfused=moved, fused=moved, compulsory=moved),
        unpriced={},
        predicted_s=value / 1000 if predicted else None,
        fits=True if predicted else None,
    )  # fmt: skip


def test_a_sweep_is_a_document_that_names_its_schema() -> None:
    sweep = sweep_of(1, 2, hardware="A device")

    assert encode(sweep).startswith(b'{"schema":"torchstone/cost_sweep/1"')
    assert decode(encode(sweep), CostSweep, origin="the sweep") == sweep


def test_what_was_not_predicted_is_said_to_be_unknown() -> None:
    assert b'"predicted_s":null' in encode(sweep_of(1))
