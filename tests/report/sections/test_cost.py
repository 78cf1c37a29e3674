from pathlib import Path

import msgspec
import torch
from torch import nn

from tests.cost.devices import device
from tests.report.folders import folder_of
from torchstone.capture import capture
from torchstone.cost import price
from torchstone.cost.formats import with_formats
from torchstone.cost.roofline import predict
from torchstone.cost.scaling import split_over
from torchstone.record import codec
from torchstone.record.cost import Conventions, CostTable, Formats
from torchstone.record.trace import Trace
from torchstone.report.render import write_report
from torchstone.report.section import ReportFolder, SectionView, Tone
from torchstone.report.sections import cost
from torchstone.report.view.cost import advice
from torchstone.units import show_bytes, show_flops


def trace_and_costs(*, predicted: bool = True) -> tuple[Trace, CostTable]:
    trace = capture(nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))), torch.ones(2, 8))
    table = price(trace)
    return trace, msgspec.structs.replace(table, prediction=predict(trace, table, device()) if predicted else None)


def view(path: Path, trace: Trace, table: CostTable) -> SectionView:
    codec.save(path / cost.FILE, table)
    return cost.build(ReportFolder(folder_of(trace, path)))


def test_the_cards_say_flops_bytes_peak_and_time(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    found = view(tmp_path, trace, table)
    assert [card.title for card in found.cards] == [
        "FLOPs", "Bytes moved", "Peak memory", "Predicted time", "Fits in memory",
    ]  # fmt: skip
    assert found.cards[0].value == "816"
    assert found.cards[3].value.startswith("at least ")  # a bound, as the terminal calls it


def test_the_cards_say_the_largest_batch_and_what_each_of_several_devices_holds(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    parts = split_over(trace, table, 2, table.prediction)
    found = view(tmp_path, trace, msgspec.structs.replace(table, tensor_parallel=parts))
    fits, each = found.cards[4:]
    assert (fits.title, fits.tone) == ("Fits in memory without --tp", Tone.PLAIN)  # of the split, the next card says so
    assert each.tone is Tone.GOOD
    assert "; largest batch " in fits.detail
    assert each.title == "Each of 2 devices"
    assert each.value == show_bytes(parts.weight_bytes)
    assert each.detail.startswith(f"of weights, {show_flops(parts.flops)}; memory: fits: yes, with ideal lifetimes: ")
    assert f"traffic: {show_bytes(parts.collective_bytes)} sent by each" in each.detail


def test_the_roof_is_that_of_the_rate_that_the_times_have(tmp_path: Path) -> None:
    """A device without a rate for float32 multiplies it at another one, which need not be its highest."""
    trace, table = trace_and_costs(predicted=False)
    rates = {"bfloat16": 2e12, "float8": 8e12}
    predicted = msgspec.structs.replace(table, prediction=predict(trace, table, device(peak_flops=rates)))
    roof = view(tmp_path, trace, predicted).settings["roof"]
    assert isinstance(roof, dict)
    assert roof["peak_flops"] == 2e12


def test_without_a_device_nothing_is_predicted(tmp_path: Path) -> None:
    trace, table = trace_and_costs(predicted=False)
    found = view(tmp_path, trace, table)
    assert len(found.cards) == 3
    assert [chart.name for chart in found.charts] == ["cost-timeline", "cost-flops"]
    assert [column.name for column in found.module_columns] == ["flops", "self_flops", "moved"]


def test_the_timeline_has_a_row_for_each_op_call_and_marks_the_peak(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    found = view(tmp_path, trace, table)
    timeline = next(one for one in found.tables if one.name == "cost.timeline")
    assert timeline.rows == len(trace.ops)
    assert found.charts[0].marks[0].row == table.peak.operation_index


def test_every_module_has_its_cost_in_the_tree(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    found = view(tmp_path, trace, table)
    assert all(len(column.values) == len(trace.modules) for column in found.module_columns)
    assert found.module_columns[0].values[0] == table.totals.flops


def test_what_has_no_price_is_a_note_and_a_warning(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    totals = msgspec.structs.replace(table.totals, unpriced_calls=2)
    found = view(tmp_path, trace, msgspec.structs.replace(table, totals=totals, unpriced={"odd.op": 2}))
    assert found.cards[0].tone is Tone.WARNING
    assert found.notes[0] == "odd.op has no price: its 2 calls are not included in any total"


def test_the_page_of_a_folder_with_costs_has_the_section(tmp_path: Path) -> None:
    trace, table = trace_and_costs()
    view(tmp_path, trace, table)
    page = write_report(tmp_path)
    assert "cost.timeline" in page.read_text()


def test_costs_of_another_capture_are_told_and_not_shown(tmp_path: Path) -> None:
    _, table = trace_and_costs()

    found = view(tmp_path, capture(nn.Linear(2, 2), torch.ones(1, 2)), table)

    assert [*found.cards, *found.tables, *found.module_columns] == []
    assert "was computed from a different capture" in found.notes[0]


def test_weights_in_eight_bits_are_not_advised_to_be_stored_in_eight_bits() -> None:
    captured = capture(nn.Linear(512, 512), torch.ones(1, 512))

    def advised(weights: str | None) -> bool:
        trace = with_formats(captured, Formats(weights=weights))
        table = price(trace, Conventions(formats=Formats(weights=weights)))
        table = msgspec.structs.replace(table, prediction=predict(trace, table, device(launch_s=1e-9)))
        return any("store them in 8 bits" in one.text for one in advice(table))

    assert [advised(one) for one in (None, "bfloat16", "bfloat8_b", "mxfp4", "int8_g128")] == [True, True, *3 * [False]]


def test_advice_is_given_with_the_most_that_it_can_save() -> None:
    _, table = trace_and_costs()
    found = table.prediction
    assert found is not None

    given = advice(table)

    assert given
    assert all(one.saves_s is None or 0 < one.saves_s <= found.total_s for one in given)
    large = msgspec.structs.replace(found, fits=False, peak_bytes=5 * found.hardware.memory_bytes // 2)
    first = advice(msgspec.structs.replace(table, prediction=large))[0]
    assert first.saves_s is None
    assert "--tp 3" in first.text
    board = msgspec.structs.replace(found.hardware, devices=2)  # 2.5 times the memory of two chips
    first = advice(msgspec.structs.replace(table, prediction=msgspec.structs.replace(large, hardware=board)))[0]
    assert "--tp 5" in first.text
    assert advice(msgspec.structs.replace(table, prediction=None)) == ()
