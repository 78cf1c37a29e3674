from pathlib import Path

from tests.sweep.builders import result, run
from torchstone.record.check import Outcome
from torchstone.record.codec import save
from torchstone.record.vector import SweepHistory, SweepRun
from torchstone.report.section import ReportFolder, Table, Tone
from torchstone.report.sections import sweep


def view_of(tmp_path: Path, *runs: SweepRun) -> "dict[str, Table]":
    save(tmp_path / sweep.FILE, SweepHistory(runs=runs))
    return {table.name: table for table in sweep.build(ReportFolder(tmp_path)).tables}


def column(table: Table, name: str) -> list[object]:
    return next(list(one.values) for one in table.columns if one.name == name)


RUNS = (
    run("1", result("a"), result("b")),
    run("2", result("a", Outcome.WRONG, detail="PCC"), backend="inductor", notes=("a note",)),
)


def test_the_newest_run_of_each_backend_has_a_card_and_columns(tmp_path: Path) -> None:
    tables = view_of(tmp_path, *RUNS)
    view = sweep.build(ReportFolder(tmp_path))

    assert [(card.title, card.value, card.tone) for card in view.cards] == [
        ("Sweep on eager", "2 of 2 pass", Tone.GOOD),
        ("Sweep on inductor", "0 of 1 pass", Tone.BAD),
    ]
    assert column(tables["sweep.operators"], "eager") == ["passed"]
    assert column(tables["sweep.operators"], "inductor") == ["failed"]
    assert view.notes[0] == "inductor: a note"


def test_failures_are_grouped_by_cause(tmp_path: Path) -> None:
    causes = view_of(tmp_path, *RUNS)["sweep.causes"]

    assert (column(causes, "cause"), column(causes, "vectors")) == (["wrong: PCC"], [1])


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    assert column(view_of(tmp_path, *RUNS)["sweep.runs"], "run") == ["2", "1"]


def test_a_run_that_only_accepts_calls_never_reads_as_passed(tmp_path: Path) -> None:
    accepted = result("a", Outcome.ACCEPTED)
    tables = view_of(tmp_path, run("1", accepted, backend="ttnn"))
    view = sweep.build(ReportFolder(tmp_path))

    assert view.cards[0].value == "1 of 1 accepted"
    assert column(tables["sweep.operators"], "ttnn") == ["accepted"]
    assert not any("passed up to" in note for note in view.notes)
    assert "not that its result is right" in view.notes[-1]


def test_the_trend_has_the_most_failures_first_and_leaves_out_what_never_ran(tmp_path: Path) -> None:
    first = run("1", result("a", op="aten.a"), result("b", op="aten.b"))
    second = run("2", result("a", op="aten.a"), result("b", Outcome.WRONG, op="aten.b"))
    skipped = run(
        "3", result("c", Outcome.NOT_RUN, op="aten.c"), result("d", Outcome.ACCEPTED, op="aten.d"), backend="x"
    )
    trend = view_of(tmp_path, first, second, skipped)["sweep.trend_op"]

    assert column(trend, "op") == ["aten.b", "aten.a", "aten.d"]
    assert column(trend, "2") == [1, 0, None]
