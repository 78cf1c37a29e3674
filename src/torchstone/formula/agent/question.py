"""What an agent is asked: the source, the measurements, the language, and what was wrong so far."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from torchstone.formula.agent.class_source import ClassSource
from torchstone.formula.database import Formulas
from torchstone.formula.names import short_name
from torchstone.formula.templates import name_of
from torchstone.record.formula import MeasuredCost, Quantity

_LONGEST_SOURCE = 60_000

_TASK = """\
Write the cost of one forward call of a PyTorch module class as formulas.

Answer with one JSON object and nothing else. It is data: formulas are read by a parser, never run. Its form:

{
 "flop_analysis": {
  "parameters": ["B", "S"], "formula_template": "...", "module_depends": ["class paths that are called"],
  "breakdown": {"name of a part": "its template"}, "thinking_process": "how you found it"
 },
 "memory_analysis": {
  "parameters": ["B", "S", "dtype_bytes"], "reads_template": "...", "writes_template": "...",
  "module_depends": [], "thinking_process": "..."
 },
 "defaults": {"parameter": "its value where it is not given"},
 "domain": ["conditions under which the formulas hold"],
 "assumptions": ["what else must hold, in words"]
}

The language of templates: ${parameter}, {Module}(arguments by position or name), integers and exact decimals,
+ - * / // % **, min, max, ceil, floor, ceil_log2, comparisons, and, or, not, `a if c else b`. Nothing else.
{Module}(...) stands for the same quantity of another module. The parts of the breakdown add up to the formula.

A multiply-add is two FLOPs. Every op reads its inputs once and writes its outputs once; views cost nothing.
Use exactly the parameters of the measurements, with their names. The formulas must equal every measurement exactly.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An answer, and what was wrong with it."""

    answer: str
    problem: str


def question_text(
    class_path: str,
    source: ClassSource,
    points: Sequence[MeasuredCost],
    formulas: Formulas,
    failure: str = "",
) -> str:
    """The first question about a class."""
    parts = [_TASK, f"The class is {class_path}. Its source, from {source.location.file}:", _fenced(source.text)]
    if source.config:
        parts += ["It is built from this configuration:", _fenced(source.config)]
    callable_now = _signatures(formulas, source.text)
    if callable_now:
        parts.append("Modules whose formulas are known, with the parameters of FLOPs and of bytes:\n" + callable_now)
    parts.append("What was measured, in FLOPs and bytes:\n" + "\n".join(_measured(point) for point in points))
    if failure:
        parts.append(f"The formula could not be derived by itself: {failure}")
    return "\n\n".join(parts)


def follow_up(question: str, attempts: Sequence[Attempt]) -> str:
    """The question again, with every answer so far and what was wrong with it."""
    parts = [question]
    for number, attempt in enumerate(attempts, start=1):
        parts.append(f"Answer {number} was:\n{_fenced(attempt.answer[:_LONGEST_SOURCE])}")
        parts.append(f"It was refused: {attempt.problem}. Correct it and answer with the whole JSON object again.")
    return "\n\n".join(parts)


def _fenced(text: str) -> str:
    return f"```\n{text[:_LONGEST_SOURCE]}\n```"


def _measured(point: MeasuredCost) -> str:
    values = {"flops": point.flops, "reads": point.reads_bytes, "writes": point.writes_bytes}
    return json.dumps({"parameters": point.parameters, **values})


def _signatures(formulas: Formulas, source: str) -> str:
    """The entries that the source seems to use."""
    lines = []
    for entry in formulas.entries.values():
        if short_name(entry.module_path) in source:
            flops, memory = (", ".join(entry.parameters(one)) for one in (Quantity.FLOPS, Quantity.READS))
            lines.append(f"{name_of(entry)}: ({flops}) and ({memory})")
    return "\n".join(lines)
