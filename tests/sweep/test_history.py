from msgspec.structs import replace

from tests.sweep.builders import result, run
from torchstone.record.check import Outcome
from torchstone.record.vector import Quarantine, QuarantineEntry, SweepHistory, SweepRun
from torchstone.sweep.history import first_bad, flaky_vectors, quarantined, trend_of

PASSED, WRONG, NOT_RUN = Outcome.PASSED, Outcome.WRONG, Outcome.NOT_RUN


def at(commit: str, name: str, **ends: Outcome) -> SweepRun:
    return replace(run(name, *(result(vector, outcome) for vector, outcome in ends.items())), commit=commit)


HISTORY = SweepHistory(
    runs=(
        at("aaa", "1", good=PASSED, broke=PASSED, never=WRONG, luck=PASSED),
        at("bbb", "2", good=PASSED, broke=PASSED, never=WRONG, luck=WRONG),
        at("ccc", "3", good=PASSED, broke=WRONG, never=WRONG, luck=PASSED),
        at("ccc", "4", good=PASSED, broke=NOT_RUN, never=WRONG, luck=WRONG),
        at("ddd", "5", good=PASSED, broke=WRONG, never=WRONG, luck=PASSED),
    )
)


def test_a_vector_fails_since_the_first_run_of_its_last_failures() -> None:
    found = {one.id: (one.commit, one.good_commit) for one in first_bad(HISTORY)}

    assert found == {"broke": ("ccc", "bbb"), "never": ("aaa", "")}


def test_a_vector_that_passes_and_fails_by_turns_is_flaky() -> None:
    (found,) = flaky_vectors(HISTORY)

    assert (found.id, found.flips, found.failed, found.runs, found.same_commit) == ("luck", 4, 2, 5, True)


def test_a_trend_counts_each_run() -> None:
    points = trend_of(HISTORY, by="op")

    assert [(point.run, point.failed) for point in points] == [("1", 1), ("2", 2), ("3", 2), ("4", 2), ("5", 2)]


def test_the_quarantine_names_vectors_or_ops_and_may_be_that_of_one_backend() -> None:
    listed = Quarantine(entries=(QuarantineEntry(vector="bro", reason="known", backend="inductor"),))
    broke = result("broke", WRONG)

    assert [one.quarantined for one in quarantined([broke, result("good", PASSED)], listed, "inductor")] == [
        "known",
        "",
    ]
    assert [one.quarantined for one in quarantined([broke], listed, "eager")] == [""]
