"""The answers of `torchstone analyze`: the verdict first, then one line for each question."""

import msgspec

from torchstone.record import codec
from torchstone.record.analysis import Analysis, AnalysisStage, StageState
from torchstone.report.analysis_text import answer_text, word_for
from torchstone.report.section import Banner, Card, Column, ReportFolder, SectionView, Shown, Table, Tone

NAME = "analysis"
FILE = "analysis.json"


def build(folder: ReportFolder) -> SectionView:
    """The view of an analysis."""
    analysis = codec.load(folder.path / FILE, Analysis)
    judged = [one for one in analysis.stages if one.good is not None]
    tone = Tone.BAD if analysis.bad else Tone.GOOD if judged else Tone.PLAIN
    return SectionView(
        name=NAME,
        title="Answers",
        document=msgspec.to_builtins(analysis),
        banner=Banner(text=analysis.headline, tone=tone),
        cards=(*map(_card, analysis.stages), *_closing_cards(analysis)),
        tables=(_table(analysis.stages),),
        notes=() if analysis.finished else ("The analysis was interrupted; finish it with --resume.",),
    )


def _card(stage: AnalysisStage) -> Card:
    title, detail = stage.question, answer_text(stage)
    if stage.good is None:
        value = stage.short if stage.state is StageState.DONE else stage.state.value.capitalize()
        tone = Tone.BAD if stage.state is StageState.FAILED else Tone.PLAIN
        return Card(title=title, value=value, detail=detail, tone=tone)
    return Card(title=title, value="Yes" if stage.good else "No", detail=detail, tone=_tone(good=stage.good))


def _closing_cards(analysis: Analysis) -> tuple[Card, ...]:
    """What is not known, and what to do next: the last lines of the terminal, too."""
    number, step = len(analysis.unknown), analysis.next_step
    parts = "; ".join(analysis.unknown) or "Everything that was asked has an answer."
    value = "No question" if not number else "1 part" if number == 1 else f"{number} parts"
    unknown = Card(title="What is unknown", value=value, detail=parts)
    return (unknown, Card(title="What to do next", value="Run", detail=step)) if step else (unknown,)


def _tone(*, good: bool) -> Tone:
    return Tone.GOOD if good else Tone.BAD


def _table(stages: tuple[AnalysisStage, ...]) -> Table:
    columns = (
        Column(name="question", title="Question", values=[one.question for one in stages], shown=Shown.TEXT),
        Column(name="verdict", title="Verdict", values=[word_for(one) for one in stages], shown=Shown.TEXT),
        Column(name="answer", title="Answer", values=[answer_text(one) for one in stages], shown=Shown.TEXT),
        Column(name="next", title="Next command", values=[one.next_step for one in stages], shown=Shown.TEXT),
        Column(name="seconds", title="Took", values=[one.seconds for one in stages], shown=Shown.SECONDS),
    )
    return Table(name="answers", title="Questions and answers", columns=columns)
