from tests.sweep.builders import result, run
from torchstone.record.check import Outcome
from torchstone.record.vector import SweepHistory
from torchstone.report.view.sweeps import op_rows, vector_rows, word_for

PASSED, WRONG, NOT_RUN = Outcome.PASSED, Outcome.WRONG, Outcome.NOT_RUN


def test_ops_stand_side_by_side_by_backend_the_worst_first() -> None:
    history = SweepHistory(
        runs=(
            run("1", result("a", WRONG), backend="eager"),  # older: not shown
            run("2", result("a", calls=5), result("b", NOT_RUN), result("c", op="aten.add.Tensor", calls=9)),
            run("3", result("a", WRONG, calls=5), backend="inductor"),
        )
    )

    rows = op_rows(history)

    assert [row.op for row in rows] == ["aten.mm.default", "aten.add.Tensor"]
    assert rows[0].by_backend == {"eager": (1, 0, 1), "inductor": (0, 1, 0)}
    assert (rows[0].vectors, rows[0].calls) == (2, 5)


def test_a_vector_has_a_word_for_every_run_and_nothing_where_it_was_not_part() -> None:
    runs = (run("1", result("a", WRONG), result("b")), run("2", result("a")), run("3", result("a", NOT_RUN)))

    rows = {row.id: row for row in vector_rows(runs)}

    assert rows["a"].words == ("failed", "passed", "not run")
    assert rows["b"].words == ("passed", "", "")
    assert rows["a"].failure_rate == 0.5
    assert rows["b"].failure_rate == 0.0


def test_failures_come_first() -> None:
    assert [row.id for row in vector_rows((run("1", result("a"), result("b", WRONG)),))] == ["b", "a"]


def test_many_results_in_one_word() -> None:
    assert [word_for(counts) for counts in ((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 5), None)] == [
        "passed",
        "failed",
        "failed",
        "not run",
        "not run",
    ]
