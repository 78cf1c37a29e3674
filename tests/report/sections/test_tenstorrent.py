from pathlib import Path

from tests.report.traces import transformer
from torchstone.record.codec import save
from torchstone.record.mapping import MappedModule, MappedOp, MemoryPlan, ModelMapping, worst
from torchstone.report.map_text import mapping_text
from torchstone.report.section import ReportFolder, Tone
from torchstone.report.sections import tenstorrent

OPS = (
    MappedOp(op="aten.mm.default", arguments="", kind="one to one", outcome="accepted", calls=3, flops=900,
             library_calls=("ttnn.matmul",), programs=1),
    MappedOp(op="aten.view.default", arguments="", kind="view", outcome="accepted", calls=4, programs=0),
    MappedOp(op="aten.t.default", arguments="", kind="view", outcome="accepted", calls=1, programs=1),
    MappedOp(op="aten.sort.default", arguments="x", kind="one to one", outcome="refused", calls=1, flops=100,
             detail="sort of 7", cause="sort of N", variant="inputs in float32"),
    MappedOp(op="aten.histc.default", arguments="x", kind="none", outcome="unmapped", calls=1, detail="no histogram"),
)  # fmt: skip
MAPPING = ModelMapping(
    model="net", device="n150", version="ttnn 0", ops=OPS,
    modules=(MappedModule(path="", own="", inclusive="refused"),),
    plan=MemoryPlan(outcome="out of memory", detail="no room", failed_op="aten.mm.default", failed_step=1,
                    l1_bank_bytes=(0, 0), dram_bank_bytes=(64, 128)),
)  # fmt: skip


def test_shares_count_calls_and_flops_that_are_accepted() -> None:
    assert (MAPPING.calls, MAPPING.mapped_calls, MAPPING.accepted_calls) == (10, 9, 8)
    assert (MAPPING.flops, MAPPING.accepted_flops) == (1000, 900)
    assert MAPPING.views == (5, 4)


def test_the_text_says_what_is_refused_and_never_that_something_passed() -> None:
    said = mapping_text(MAPPING)

    assert "80.00 % of 10 op calls and 90.00 % of 1.00 K FLOPs" in said
    assert "inputs in float32" in said
    assert "op 1, aten.mm.default, with out of memory: no room" in said
    assert "pass" not in said.lower()


def test_the_worst_outcome_of_a_module_is_shown() -> None:
    assert worst(["accepted", "refused", "out of memory"]) == "out of memory"
    assert worst([]) == ""


def test_the_section_has_the_verdict_first_and_a_column_for_modules(tmp_path: Path) -> None:
    save(tmp_path / "trace.json", transformer(1))
    save(tmp_path / tenstorrent.FILE, MAPPING)
    view = tenstorrent.build(ReportFolder(tmp_path))

    assert view.banner is not None
    assert "no value was compared" in view.banner.text
    assert view.cards[0].value == "80.00 %"
    assert view.cards[0].tone is Tone.WARNING
    assert view.module_columns[0].values[0] == "refused"
    assert "pass" not in str(view.cards).lower()
