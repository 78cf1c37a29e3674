"""Questions for the backend, each answered in a process of its own, and kept: none is asked twice."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from torchstone.check.outcomes import unit_result
from torchstone.record.base import Record
from torchstone.record.check import UnitResult
from torchstone.record.task import Task, TaskResult
from torchstone.workers.executor import Executor
from torchstone.workers.journal import ResultJournal


class Answered(Record, frozen=True, kw_only=True):
    """An answer, as told to whoever watches."""

    name: str
    result: UnitResult
    fresh: bool  # False: it was known from before
    waiting: int  # questions that are still open


Told = Callable[[Answered], None]


class Question(Record, frozen=True, kw_only=True):
    """A task, and where it leaves what it cannot answer itself."""

    task: Task
    stage_file: str = ""  # how far it came
    ir_folder: str = ""  # relative to the folder of results
    reuse_key: str = ""  # the same question of another model has the same key; "" where there is none


class Asking:
    """Asks an executor what neither the journal nor an earlier model has answered."""

    def __init__(
        self, executor: Executor, journal: Path, *, reuse: Path | None = None, told: Told | None = None
    ) -> None:
        self.asked = 0
        self.elapsed_s = 0.0
        self._executor = executor
        self._journal = ResultJournal(journal, UnitResult)
        self._shared = ResultJournal(reuse, UnitResult) if reuse is not None else None
        self._told = told
        self._open: dict[str, Question] = {}
        self._ready: deque[tuple[str, UnitResult]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._journal.close()
        if self._shared is not None:
            self._shared.close()

    def ask(self, question: Question) -> None:
        """Put a question; its answer comes with `answers`."""
        name = question.task.id
        self.asked += 1
        result = self._journal.find(name)
        if result is None and self._shared is not None and question.reuse_key:
            result = self._shared.find(question.reuse_key)
            if result is not None:
                self._journal.keep(name, result)
        if result is not None:
            self._ready.append((name, result))
            return
        self._open[name] = question
        self._executor.submit(question.task)

    def answers(self) -> Iterator[tuple[str, UnitResult]]:
        """The answers as they come; more may be asked meanwhile."""
        while self._ready or self._open:
            yield from self._known_answers()
            for ended in self._executor.results():
                question = self._open.pop(ended.id)
                stage = Path(question.stage_file) if question.stage_file else None
                result = unit_result(
                    ended,
                    stage=stage.read_text(encoding="ascii") if stage is not None and stage.is_file() else "",
                    ir_folder=question.ir_folder,
                )
                self._journal.keep(ended.id, result)
                if self._shared is not None and question.reuse_key:
                    self._shared.keep(question.reuse_key, result)
                yield self._tell(ended.id, result, fresh=True)
                yield from self._known_answers()

    def answer(self, question: Question) -> UnitResult:
        """Put one question and wait."""
        self.ask(question)
        ((_, result),) = self.answers()
        return result

    def fetch(self, task: Task) -> TaskResult:
        """Run a task that is no question about the backend; its answer is not kept."""
        self._executor.submit(task)
        (ended,) = self._executor.results()
        return ended

    def _known_answers(self) -> Iterator[tuple[str, UnitResult]]:
        while self._ready:
            yield self._tell(*self._ready.popleft(), fresh=False)

    def _tell(self, name: str, result: UnitResult, *, fresh: bool) -> tuple[str, UnitResult]:
        self.elapsed_s += result.elapsed_s
        if self._told is not None:
            self._told(Answered(name=name, result=result, fresh=fresh, waiting=len(self._open) + len(self._ready)))
        return name, result
