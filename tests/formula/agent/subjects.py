"""A class with known costs, and answers about it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchstone.formula.agent.ask import Subject
from torchstone.formula.agent.prompt import ClassSource
from torchstone.record.formula import CodeLocation, MeasuredCost

SOURCE = ClassSource(
    file=Path("net.py"),
    location=CodeLocation(file="pkg/net.py", line_start=3, line_end=9),
    text="class Net:\n    def forward(self, x):\n        return Linear(x) * 2",
)


def measured(n: int) -> MeasuredCost:
    """Three FLOPs for each element; reads once, writes twice."""
    return MeasuredCost(parameters={"n": n}, flops=3 * n, reads_bytes=2 * n, writes_bytes=4 * n)


def subject(*, points: Sequence[MeasuredCost] = (measured(5), measured(8)), failure: str = "") -> Subject:
    """The class pkg.Net, measured at two points."""
    return Subject(class_path="pkg.Net", source=SOURCE, points=points, versions={"torch": "2"}, failure=failure)


def answer(flops: str = "3 * ${n}", reads: str = "2 * ${n}", writes: str = "4 * ${n}") -> str:
    """What an agent may say, with words around it."""
    document = {
        "flop_analysis": {"parameters": ["n"], "formula_template": flops, "thinking_process": "I counted."},
        "memory_analysis": {"parameters": ["n"], "reads_template": reads, "writes_template": writes},
    }
    return f"Here it is:\n```json\n{json.dumps(document)}\n```\nDone."


@dataclass
class Scripted:
    """A provider that gives prepared answers and keeps the questions."""

    answers: list[str]
    questions: list[str] = field(default_factory=list)
    name: str = "scripted"

    def ask(self, question: str) -> str:
        self.questions.append(question)
        return self.answers[len(self.questions) - 1]
