from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from torchstone.check.runner import Answer, Request, Runner, status_of
from torchstone.record.check import Outcome, Status
from torchstone.record.task import Ending, Evidence, Task, TaskResult


class Scripted:
    """An executor that gives prepared results, and remembers what it was asked."""

    def __init__(self, **results: TaskResult) -> None:
        self.asked: list[str] = []
        self._results = results
        self._waiting: list[str] = []

    def submit(self, task: Task) -> None:
        self.asked.append(task.id)
        self._waiting.append(task.id)

    def results(self) -> Iterator[TaskResult]:
        while self._waiting:
            name = self._waiting.pop()
            yield msgspec.structs.replace(self._results.get(name, PASSED), id=name)

    def close(self) -> None:
        pass


PASSED = TaskResult(id="", ending=Ending.ANSWERED, answer={"outcome": "passed"}, elapsed_s=1.0)
CRASHED = TaskResult(id="", ending=Ending.CRASHED, evidence=Evidence(signal="SIGSEGV"))


def request(name: str, **more: Any) -> Request:
    return Request(task=Task(id=name, entry="nobody:calls"), **more)


def test_more_may_be_asked_while_answers_come(tmp_path: Path) -> None:
    executor = Scripted()
    with Runner(executor, tmp_path / "journal.jsonl") as runner:
        runner.ask(request("first"))
        names = []
        for name, _ in runner.answers():
            names.append(name)
            if name == "first":
                runner.ask(request("second"))

    assert names == ["first", "second"]


def test_what_the_journal_knows_is_not_asked_again(tmp_path: Path) -> None:
    with Runner(Scripted(a=CRASHED), tmp_path / "journal.jsonl") as runner:
        before = runner.answer(request("a"))
    executor = Scripted()

    with Runner(executor, tmp_path / "journal.jsonl") as again:
        assert again.answer(request("a")) == msgspec.structs.replace(before, reused=True)
        assert again.reused == [before.ran_at]

    assert executor.asked == []


def test_what_failed_beside_the_backend_is_asked_again(tmp_path: Path) -> None:
    """The process of a task could not read its values, say: that is no verdict, and must not be kept as one."""
    evidence = Evidence(error="TensorFileError: cannot read x.safetensors: Cannot allocate memory")
    raised = TaskResult(id="", ending=Ending.RAISED, evidence=evidence)
    journal, shared = tmp_path / "journal.jsonl", tmp_path / "shared.jsonl"
    with Runner(Scripted(a=raised), journal, reuse=shared) as runner:
        assert runner.answer(request("a", reuse_key="k")).outcome is Outcome.NOT_RUN

    with Runner(Scripted(), journal, reuse=shared) as again:
        assert again.answer(request("a", reuse_key="k")).outcome is Outcome.PASSED


def test_results_are_shared_by_key(tmp_path: Path) -> None:
    with Runner(Scripted(a=CRASHED), tmp_path / "one.jsonl", reuse=tmp_path / "shared.jsonl") as runner:
        runner.answer(request("a", reuse_key="k"))
    executor = Scripted()

    with Runner(executor, tmp_path / "other.jsonl", reuse=tmp_path / "shared.jsonl") as other:
        assert other.answer(request("b", reuse_key="k")).outcome is Outcome.CRASHED
        assert other.answer(request("c", reuse_key="another")).outcome is Outcome.PASSED

    assert executor.asked == ["c"]


def test_a_crash_is_told_with_how_far_it_came(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    stage.write_text("export")

    with Runner(Scripted(a=CRASHED), tmp_path / "journal.jsonl") as runner:
        assert runner.answer(request("a", stage_file=str(stage))).stage == "export"


def test_whoever_watches_is_told_everything(tmp_path: Path) -> None:
    told: list[Answer] = []
    with Runner(Scripted(), tmp_path / "journal.jsonl", on_answer=told.append) as runner:
        runner.ask(request("a"))
        runner.ask(request("b"))
        list(runner.answers())
        runner.answer(request("a"))

    assert [(one.name, one.fresh, one.waiting) for one in told] == [("b", True, 1), ("a", True, 0), ("a", False, 0)]
    assert runner.elapsed_s == 3.0


def test_what_is_fetched_is_not_kept(tmp_path: Path) -> None:
    executor = Scripted()
    with Runner(executor, tmp_path / "journal.jsonl") as runner:
        runner.fetch(Task(id="a", entry="nobody:calls"))
        runner.fetch(Task(id="a", entry="nobody:calls"))

    assert executor.asked == ["a", "a"]


REFUSED = TaskResult(id="", ending=Ending.ANSWERED, answer={"outcome": "unsupported", "reason": "no rule"})


def test_ir_is_exported_only_after_a_failure(tmp_path: Path) -> None:
    exported = TaskResult(id="", ending=Ending.ANSWERED, answer={"outcome": "passed", "irs": ["aten"]})
    executor = Scripted(bad=REFUSED, **{"ir:bad": exported})
    with Runner(executor, tmp_path / "journal.jsonl") as runner:
        for name in ("good", "bad"):
            runner.ask(request(name, ir_task=Task(id=f"ir:{name}", entry="nobody:calls"), ir_folder=f"irs/{name}"))
        found = dict(runner.answers())

    assert sorted(executor.asked) == ["bad", "good", "ir:bad"]
    assert found["good"].irs == ()
    assert (found["bad"].outcome, found["bad"].irs) == (Outcome.UNSUPPORTED, ("irs/bad/aten.txt",))


def test_an_export_that_fails_as_well_makes_the_status_the_one_it_always_had(tmp_path: Path) -> None:
    raises = TaskResult(id="", ending=Ending.ANSWERED, answer={"outcome": "compile error", "ir_error": "no rule"})
    executor = Scripted(one=REFUSED, two=CRASHED, **{"ir:one": raises, "ir:two": CRASHED})
    with Runner(executor, tmp_path / "journal.jsonl") as runner:
        for name in ("one", "two"):
            runner.ask(request(name, ir_task=Task(id=f"ir:{name}", entry="nobody:calls")))
        found = dict(runner.answers())

    assert {status_of(result) for result in found.values()} == {Status.IR_EXPORT_FAILED}
    assert found["two"].outcome is Outcome.CRASHED
