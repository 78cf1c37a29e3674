from torchstone.record.codec import decode, encode
from torchstone.record.cost import Category, Conventions, CostSweep, SweepPoint, Totals, Traffic, TrafficLevels


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
