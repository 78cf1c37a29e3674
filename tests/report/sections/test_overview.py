from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.report.section import ReportFolder, Tone
from torchstone.report.sections.overview import build


def test_the_cards_tell_the_totals(tmp_path: Path) -> None:
    view = build(ReportFolder(folder_of(transformer(2), tmp_path)))

    assert [card.title for card in view.cards] == ["Parameters", "Weights", "Modules", "Op calls"]
    assert view.cards[0].value == "195 K"
    assert view.cards[3].value == "41"
    assert view.notes == ("input_ids were generated",)


def test_a_failed_capture_is_the_first_card(tmp_path: Path) -> None:
    view = build(ReportFolder(folder_of(transformer(2, fails_in=1), tmp_path)))

    assert (view.cards[0].value, view.cards[0].tone) == ("Failed", Tone.BAD)
    assert view.settings["failure"]["op"] == "aten.mm.default"
