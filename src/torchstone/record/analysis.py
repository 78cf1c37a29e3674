"""The answers of `torchstone analyze` about one model, one for each question."""

from enum import StrEnum
from typing import ClassVar

from torchstone.record.base import Document, Record, Schema

UNKNOWN = "Unknown:"  # begins a sentence of an answer that says what is not known


class StageState(StrEnum):
    """How a stage of an analysis ended."""

    DONE = "done"
    FAILED = "failed"  # it could not answer; the reason is its answer
    SKIPPED = "skipped"


class AnalysisStage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One question and its answer."""

    name: str
    question: str
    state: StageState
    answers: tuple[str, ...]  # sentences; of a stage that failed or was skipped, the reason
    short: str = ""  # the answer in a few words, for the headline: "runs on inductor"
    good: bool | None = None  # whether the answer is the one that is hoped for; None: it is a plain fact
    next_step: str = ""  # a command
    seconds: float = 0.0


class Analysis(Document, frozen=True, kw_only=True, omit_defaults=False):
    """Everything that one command found out about a model."""

    schema: ClassVar[Schema] = Schema(kind="analysis", version=1)
    model: str
    request: str  # what was asked for: a resumed analysis keeps answers to the same request only
    stages: tuple[AnalysisStage, ...] = ()
    finished: bool = False

    @property
    def bad(self) -> tuple[AnalysisStage, ...]:
        """The stages with something to look at: a failure on a backend, a device that is too small."""
        return tuple(one for one in self.stages if one.good is False or one.state is StageState.FAILED)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What is not known: questions without an answer, and parts of answers."""
        found = []
        for one in self.stages:
            if one.state is not StageState.DONE:
                found.append(one.question)
            found += [
                text.removeprefix(UNKNOWN).strip().removesuffix(".") for text in one.answers if text.startswith(UNKNOWN)
            ]
        return tuple(found)

    @property
    def next_step(self) -> str:
        """The command to run next: of what is bad first, else of the last stage that names one."""
        return next((one.next_step for one in (*self.bad, *reversed(self.stages)) if one.next_step), "")

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        words = [one.short for one in (*self.bad, *self.stages) if one.good is not None and one.short]
        said = list(dict.fromkeys(words))
        sentences = [f"It {' and '.join([', '.join(said[:-1]), said[-1]] if len(said) > 1 else said)}."] if said else []
        failed = [one.question for one in self.bad if one.good is None]
        sentences += [f"No answer to: {'; '.join(failed)}."] if failed else []
        return " ".join(sentences) or "Nothing was judged."
