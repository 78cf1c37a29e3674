from pathlib import Path

from tests.check.results import check_result, finding
from torchstone.check.summary import compare
from torchstone.record import codec
from torchstone.report.section import ReportFolder, Tone
from torchstone.report.sections.check_comparison import build


def test_each_backend_has_a_card_and_a_column(tmp_path: Path) -> None:
    found = compare([check_result(), check_result(finding(), backend="other")], ["a", "b"])
    codec.save(tmp_path / "check_comparison.json", found)

    view = build(ReportFolder(tmp_path))

    assert [(card.title, card.tone) for card in view.cards] == [
        ("a: faulty (torch 2)", Tone.GOOD),
        ("b: other (torch 2)", Tone.BAD),
    ]
    modules = {column.name: list(column.values) for column in view.tables[0].columns}
    assert modules["side0"] == ["success", "inherited_success", "not run"]
    assert modules["side1"] == ["failed", "skipped", "failed"]
    assert list(view.tables[1].columns[1].values) == ["aten.mm.default"]
