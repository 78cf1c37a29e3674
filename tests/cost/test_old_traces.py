"""Traces that an older torchstone wrote must load, and cost what they cost then."""

from pathlib import Path

from torchstone.cost import price
from torchstone.record.codec import load
from torchstone.record.cost import CostTable
from torchstone.record.trace import Trace

OLD = Path(__file__).parent.parent / "record" / "old"


def test_a_trace_of_version_1_costs_what_it_did() -> None:
    trace = load(OLD / "trace_1.json", Trace)

    assert trace.repeats == ()
    assert len(trace.ops) == len(trace.recorded_ops) == 66
    assert price(trace) == load(OLD / "cost_of_trace_1.json", CostTable)
