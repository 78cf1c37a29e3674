import copy

import msgspec
import torch
from torch import nn

from tests.cost.devices import device
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.optimizer import optimiser_cost
from torchstone.cost.roofline import predict
from torchstone.cost.scaling import split_over
from torchstone.record.cost import Conventions, CostComparison, CostTable, Difference, PeerComparison, PeerCount
from torchstone.record.trace import Trace
from torchstone.report.cost_text import (
    CostTextOptions,
    comparison_text,
    cost_text,
    module_csv,
    ops_text,
    prediction_text,
    share,
    totals_text,
    tree_text,
    unit_of,
    unpriced_text,
)


def model_and_costs(conventions: Conventions | None = None) -> tuple[CostTable, Trace]:
    trace = capture(nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)), nn.ReLU()), torch.ones(2, 8))
    return price(trace, conventions or Conventions()), trace


def test_a_folded_row_stands_for_the_sum_of_its_layers() -> None:
    table, trace = model_and_costs()
    folded = tree_text(table, trace, CostTextOptions())
    line = next(line for line in folded.splitlines() if "4 x Linear" in line)
    assert "1.09 K" in line  # 4 * (256 + 16)
    assert "98.6%" in line


def test_ops_beyond_the_top_are_summed_up_not_dropped() -> None:
    table, _ = model_and_costs()
    text = ops_text(table, 1)
    assert "aten.addmm.default" in text
    assert "1 more op" in text


def test_the_unit_follows_the_convention() -> None:
    table, trace = model_and_costs(Conventions(multiply_add=1))
    assert unit_of(table) == "MACs"
    assert "MACs" in cost_text(table, trace, CostTextOptions())
    assert "counts as one" in totals_text(table)


def test_the_work_of_a_device_has_the_unit_of_the_table() -> None:
    for multiply_add, unit in ((1, "MACs"), (2, "FLOPs")):
        table, trace = model_and_costs(Conventions(multiply_add=multiply_add))
        part = split_over(trace, table, 2)
        text = prediction_text(msgspec.structs.replace(table, tensor_parallel=part), trace, 5)
        assert part.flops < 1000
        assert f"2, each {part.flops} {unit} and" in text


def test_whether_one_device_is_enough_is_no_advice_where_the_work_is_split() -> None:
    table, trace = model_and_costs()
    small = device(memory_bytes=table.peak.total_bytes - 1)
    alone = msgspec.structs.replace(table, prediction=predict(trace, table, small))
    split = split_over(trace, alone, 2, alone.prediction)
    for fits, advised in ((True, False), (False, True)):
        parts = msgspec.structs.replace(split, fits=fits)
        text = prediction_text(msgspec.structs.replace(alone, tensor_parallel=parts), trace, 5)
        assert "\nfits        no without --tp: " in text
        assert "--tp 2)" not in text
        assert ("it does not fit on 2 devices: more of them" in text) is advised
    assert "it does not fit: 2 devices or more have the memory (--tp 2)" in prediction_text(alone, trace, 5)


def test_a_batch_without_eager_lifetimes_is_called_ideal() -> None:
    trace = capture(nn.Sequential(nn.Linear(8, 8)), torch.ones(2, 8), backward=True)
    table = price(trace)
    found = predict(trace, table, device(memory_bytes=10_000))
    assert found.largest_batch is not None
    assert found.eager_largest_batch is None
    assert f"largest batch {found.largest_batch} ideal" in prediction_text(
        msgspec.structs.replace(table, prediction=found), trace, 5
    )


def test_what_has_no_price_is_said_in_the_end() -> None:
    table, _ = model_and_costs()
    assert unpriced_text(table) == ""
    table = msgspec.structs.replace(table, unpriced={"odd.op": 3})
    assert unpriced_text(table) == "unpriced ops, not included in any total: odd.op (3 x)"


def test_a_comma_in_a_name_does_not_break_the_spreadsheet() -> None:
    table, _ = model_and_costs()
    odd = msgspec.structs.replace(table.modules[0], path='a,"b"')
    assert module_csv([odd]).splitlines()[1].startswith('"a,""b""",')


def test_a_share_of_nothing_is_not_a_number() -> None:
    assert share(1, 0) == "-"
    assert share(1, 8) == "12.5%"


def test_what_is_inside_a_folded_row_adds_up_to_it() -> None:
    block = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Sequential(nn.Linear(8, 8, bias=False)))
    model = nn.Sequential(*(copy.deepcopy(block) for _ in range(4)))
    trace = capture(model, torch.ones(2, 8))
    lines = tree_text(price(trace), trace, CostTextOptions()).splitlines()
    inside = [line.split() for line in lines if "4 x Linear" in line]
    assert [cells[cells.index("Linear") + 1] for cells in inside] == ["1.02", "1.02"]
    assert "2.05 K" in next(line for line in lines if "4 x Sequential" in line)


def counted(name: str, flops: int | None, by_op: dict[str, int] | None = None, error: str = "") -> PeerCount:
    return PeerCount(name=name, total_flops=flops, by_op=by_op or {}, skipped={}, seconds=0.5, error=error)


def test_other_counters_are_listed_with_the_reason_for_each_difference() -> None:
    table, _ = model_and_costs()
    ours = table.totals.matmul_flops
    half = Difference(op="addmm", ours=ours, theirs=ours // 2, reason="half: it counts multiply-adds")
    counters = (
        PeerComparison(count=counted("fvcore", ours // 2, {"addmm": ours // 2}), differences=(half,), inferred=""),
        PeerComparison(count=counted("thop", ours - 8), differences=(), inferred="no choice of ops gives its total"),
        PeerComparison(count=counted("ptflops", ours), differences=(), inferred="equal"),
        PeerComparison(count=counted("calflops", None, error="not installed"), differences=(), inferred=""),
    )
    comparison = CostComparison(matmul_flops=ours, counters=counters)

    lines = comparison_text(msgspec.structs.replace(table, comparison=comparison)).splitlines()

    assert [line.split()[0] for line in lines[1:6]] == ["torchstone", "fvcore", "thop", "ptflops", "calflops"]
    assert lines[2].split()[1:3] == [f"{ours // 2:,}", "0.500"]
    assert lines[5].endswith("not installed")
    assert lines[6:] == [
        f"fvcore: addmm: {ours // 2:,} against {ours:,}: half: it counts multiply-adds",
        "thop: no choice of ops gives its total",
    ]


def test_without_other_counters_there_is_no_comparison() -> None:
    assert comparison_text(model_and_costs()[0]) == ""


TRACE = capture(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)), torch.ones(4, 8))
COSTS = price(TRACE)


def test_nothing_is_said_that_was_not_asked_for() -> None:
    assert prediction_text(COSTS, TRACE, 5) == ""


def test_a_prediction_is_called_one_and_names_bound_and_source() -> None:
    table = msgspec.structs.replace(COSTS, prediction=predict(TRACE, COSTS, device()))
    text = prediction_text(table, TRACE, 5)
    assert "aten.addmm.default" in text
    assert "bound by memory" in text
    assert "made up; a roofline: a bound by published rates, not a measurement" in text
    assert "yes:" in text


def test_a_split_and_an_optimiser_have_their_lines() -> None:
    table = msgspec.structs.replace(
        COSTS, tensor_parallel=split_over(TRACE, COSTS, 2), optimiser=optimiser_cost(TRACE, "adamw")
    )
    text = prediction_text(table, TRACE, 5)
    assert "in 1 all-reduce" in text
    assert "adamw over 552 parameters" in text
