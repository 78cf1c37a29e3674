"""Terminal output of `torchstone analyze`: the verdict, then one answer for each question."""

from torchstone.record.analysis import Analysis, AnalysisStage, StageState
from torchstone.report.text import Paint, aligned, plain


def analysis_text(analysis: Analysis, paint: Paint = plain) -> str:
    """The headline, the answers, and what to do next."""
    rows = [(one.question, word_for(one), answer_text(one)) for one in analysis.stages]
    lines = [analysis.headline, "", aligned(rows, header=False, paint=paint)]
    if analysis.unknown:
        lines += ["", f"unknown: {'; '.join(analysis.unknown)}"]
    if analysis.next_step:
        lines += ["", f"next: {analysis.next_step}"]
    return "\n".join(lines)


def word_for(stage: AnalysisStage) -> str:
    """One word for how a stage ended."""
    if stage.state is not StageState.DONE:
        return stage.state.value
    return "" if stage.good is None else "yes" if stage.good else "no"


def answer_text(stage: AnalysisStage) -> str:
    """The sentences of a stage in one line."""
    return " ".join(stage.answers)
