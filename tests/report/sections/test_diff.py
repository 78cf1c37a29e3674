from pathlib import Path

from tests.report.traces import transformer
from tests.workflows.test_diff import folder
from torchstone.report.section import ReportFolder
from torchstone.report.sections.diff import build
from torchstone.workflows.diff import diff_folders


def test_cards_say_how_much_changed_or_that_nothing_did(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", transformer(2)), folder(tmp_path / "b", transformer(3))
    found = diff_folders(first, second, tmp_path / "out")

    view = build(ReportFolder(tmp_path / "out"))

    cards = {card.title: card for card in view.cards}
    weights = next(one for one in found.quantities if one.name == "parameter bytes")
    assert weights.ratio is not None
    assert cards["Parameter bytes"].value == f"{weights.ratio:.3g}x"
    assert ", now " in cards["Parameter bytes"].detail
    assert (cards["Fits"].value, cards["Fits"].detail) == ("unknown", "same")  # eager lifetimes were not observed
    assert view.banner is not None
    assert "modules added" in view.banner.text


def test_two_equal_folders_have_a_page_too(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "a", transformer(1)), folder(tmp_path / "b", transformer(1))
    diff_folders(first, second, tmp_path / "out")

    view = build(ReportFolder(tmp_path / "out"))

    assert view.banner is not None
    assert view.banner.text.startswith("no difference")
    assert {card.detail for card in view.cards} == {"same"}
