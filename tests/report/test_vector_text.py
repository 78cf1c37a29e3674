from tests.sweep.builders import result, run, timing
from torchstone.record.check import Outcome
from torchstone.record.vector import SweepHistory
from torchstone.report.sweep_text import cause_of, failures_by_cause, run_text, side_by_side_text, vector_text

WRONG, CRASHED, NOT_RUN = Outcome.WRONG, Outcome.CRASHED, Outcome.NOT_RUN


def test_failures_that_differ_in_numbers_only_have_one_cause() -> None:
    one, other = result("a", WRONG, detail="PCC 0.12 at 0x7f"), result("b", WRONG, detail="PCC 0.98 at 0x8e")

    assert cause_of(one) == cause_of(other) == "wrong: PCC # at #"


def test_the_most_common_cause_comes_first_and_what_passed_has_none() -> None:
    found = failures_by_cause(
        [result("a", CRASHED, detail="x"), result("b", WRONG), result("c", WRONG), result("d"), result("e", NOT_RUN)]
    )

    assert [(cause, len(group)) for cause, group in found.items()] == [("wrong", 2), ("crashed: x", 1)]


def test_a_run_is_told_with_counts_causes_and_what_did_not_run() -> None:
    text = run_text(
        run(
            "r1",
            result("k1-aaaaaaaaaaaaaaaa"),
            result("k1-bbbbbbbbbbbbbbbb", CRASHED, detail="it was ended by SIGFPE"),
            result("k1-c", NOT_RUN, detail="why"),
            result("k1-d", timing=timing(0.5), flaky=True),
        )
    )

    assert "1 FAIL_CRASH_HANG, 1 NOT_RUN, 2 PASS" in text
    assert "of which 1 crashed" in text
    assert "it was ended by SIGFPE" in text
    assert "k1-bbbbbbbbbbbb" in text
    assert "1 not run: why" in text
    assert "1 flaky: k1-d" in text
    assert "500 ms" in text


def test_a_run_names_the_rule_that_its_values_were_judged_by() -> None:
    assert "Judged by noise (profile tt): passed up to 2 times" in run_text(run("r1", result("a"), profile="tt"))
    assert "by the tolerances that were asked for" in run_text(run("r1", result("a"), tolerance={"pcc": 0.99}))
    accepted = run_text(run("r1", result("a", Outcome.ACCEPTED)))
    assert "A mock device has no values" in accepted
    assert "Judged" not in accepted


def test_a_run_that_was_broken_off_says_so() -> None:
    assert "--resume" in run_text(run("r1", finished=False))


def test_backends_stand_side_by_side() -> None:
    text = side_by_side_text(
        SweepHistory(runs=(run("1", result("a")), run("2", result("a", WRONG), backend="inductor")))
    )

    assert text.splitlines()[0].split() == ["op", "calls", "eager", "inductor"]
    assert "1 of 1" in text
    assert "0 of 1" in text


def test_the_history_of_a_vector_ends_with_its_evidence() -> None:
    failed = result("a", CRASHED, detail="SIGSEGV", last_output="the last words")

    text = vector_text([(run("1"), failed), (run("2"), result("a"))], "self=float32[2]")

    assert "aten.mm.default(self=float32[2])" in text
    assert text.endswith("the last words")
