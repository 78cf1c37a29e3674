from pathlib import Path

from tests.report.folders import folder_of
from tests.report.sections.test_reference import GOLDEN
from tests.report.test_comparison_text import errors
from tests.report.traces import transformer
from torchstone.record import codec
from torchstone.record.reference import Comparison, Role, Status, TensorVerdict, Tolerance
from torchstone.report.section import ReportFolder, SectionView, Tone
from torchstone.report.sections.port import build


def verdict(module: str, status: Status, *, pcc: float | None = 0.5) -> TensorVerdict:
    given = status not in (Status.NOT_GIVEN, Status.MISSING)
    return TensorVerdict(
        name=f"modules/{module}/outputs",
        role=Role.MODULE_OUTPUT,
        module=module,
        status=status,
        shape=(1,),
        dtype="float32",
        errors=errors(pcc=pcc) if given else None,
        tolerance=Tolerance(pcc=0.99, relative_l2=0.3, rtol=0, atol=0) if given else None,
    )


def view_of(folder: Path, *verdicts: TensorVerdict, passed: bool) -> SectionView:
    folder_of(transformer(2), folder)
    first = None if passed else "modules/model.layers.1/outputs"
    found = Comparison(
        model="toy",
        candidate="port.npz",
        passed=passed,
        first_wrong=first,
        first_wrong_module=None if passed else "model.layers.1",
        verdicts=verdicts,
    )
    codec.save(folder / "comparison.json", found)
    return build(ReportFolder(folder))


def test_a_wrong_port_names_the_first_wrong_module(tmp_path: Path) -> None:
    view = view_of(
        tmp_path,
        verdict("model.layers.0", Status.PASSED, pcc=1.0),
        verdict("model.layers.1", Status.WRONG_VALUES),
        passed=False,
    )

    assert view.cards[0].tone is Tone.BAD
    assert view.cards[1].value == "model.layers.1"
    assert view.charts[0].marks[0].row == 1
    assert view.charts[0].lines[0].value == 0.99


def test_the_module_tree_gets_a_verdict_where_there_is_one(tmp_path: Path) -> None:
    view = view_of(
        tmp_path, verdict("model.layers.0", Status.PASSED), verdict("model.layers.1", Status.WRONG_VALUES), passed=False
    )
    paths = [module.path for module in transformer(2).modules]

    words = dict(zip(paths, view.module_columns[0].values, strict=True))

    assert words["model.layers.0"] == "passed"
    assert words["model.layers.1"] == "failed"
    assert words["lm_head"] == "not run"


def test_what_was_not_given_is_a_note_and_no_row(tmp_path: Path) -> None:
    view = view_of(
        tmp_path, verdict("model.layers.0", Status.PASSED), verdict("model.layers.1", Status.NOT_GIVEN), passed=True
    )

    assert view.tables[0].rows == 1
    assert any("1 golden tensors are not in port.npz" in note for note in view.notes)


def test_without_any_pcc_there_is_no_chart(tmp_path: Path) -> None:
    assert view_of(tmp_path, verdict("model.layers.0", Status.PASSED, pcc=None), passed=True).charts == ()


def test_a_reference_made_again_later_is_told(tmp_path: Path) -> None:
    import msgspec

    codec.save(tmp_path / "golden_data.json", msgspec.structs.replace(GOLDEN, created="later"))

    view = view_of(tmp_path, verdict("model.layers.0", Status.PASSED), passed=True)

    assert view.notes[0].endswith("run the comparison again")
