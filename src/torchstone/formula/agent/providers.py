"""Who answers questions: anything that turns one text into another."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torchstone.errors import FormulaError
from torchstone.record.codec import write_atomically

_ANSWER = "answer.txt"
_QUESTION = "question.txt"


class ProviderError(FormulaError):
    """A provider gave no answer; the message says why and what to do."""


class Provider(Protocol):
    """One question, one answer; every question holds all that must be known."""

    @property
    def name(self) -> str:
        """As it stands in the entry: who wrote it."""
        ...

    def ask(self, question: str) -> str:
        """The answer, or a ProviderError."""
        ...


@dataclass(slots=True)
class Replay:
    """Answers that were recorded before, in the order of their file names."""

    folder: Path
    name: str = "replay"
    _asked: int = field(default=0, init=False)

    def ask(self, question: str) -> str:  # noqa: ARG002 - a recorded answer does not depend on it
        """The next recorded answer."""
        answers = sorted(self.folder.glob(f"*{_ANSWER}"))
        if self._asked >= len(answers):
            msg = f"{self.folder} holds {len(answers)} recorded answers (*{_ANSWER}), and one more was asked for"
            raise ProviderError(msg)
        self._asked += 1
        return answers[self._asked - 1].read_text(encoding="utf-8")


@dataclass(slots=True)
class Recorded:
    """Another provider whose questions and answers are kept, so that they can be replayed."""

    provider: Provider
    folder: Path
    _asked: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """That of the provider itself."""
        return self.provider.name

    def ask(self, question: str) -> str:
        """The provider's answer, written down before it is used."""
        self._asked += 1
        write_atomically(self.folder / f"{self._asked:02}-{_QUESTION}", question.encode())
        answer = self.provider.ask(question)
        write_atomically(self.folder / f"{self._asked:02}-{_ANSWER}", answer.encode())
        return answer
