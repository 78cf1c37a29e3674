from pathlib import Path

from tests.report.folders import folder_of
from tests.report.sections.test_reference import GOLDEN
from tests.report.test_comparison_text import errors
from tests.report.traces import transformer
from torchstone.record import codec
from torchstone.record.reference import Comparison, LayerError, Role, SetupCheck, Status, TensorVerdict, Tolerance
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


def view_of(folder: Path, *verdicts: TensorVerdict, passed: bool, **more: object) -> SectionView:
    folder_of(transformer(2), folder)
    first = None if passed else "modules/model.layers.1/outputs"
    found = Comparison(
        model="toy",
        candidate="port.npz",
        passed=passed,
        first_wrong=first,
        first_wrong_module=None if passed else "model.layers.1",
        verdicts=verdicts,
        **more,  # type: ignore[arg-type]
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
    assert any("1 golden tensor is not in port.npz" in note for note in view.notes)


def test_without_any_pcc_there_is_no_chart(tmp_path: Path) -> None:
    assert view_of(tmp_path, verdict("model.layers.0", Status.PASSED, pcc=None), passed=True).charts == ()


def test_a_reference_made_again_later_is_told(tmp_path: Path) -> None:
    import msgspec

    codec.save(tmp_path / "golden_data.json", msgspec.structs.replace(GOLDEN, created="later"))

    view = view_of(tmp_path, verdict("model.layers.0", Status.PASSED), passed=True)

    assert view.notes[0].endswith("run the comparison again")


def layer(module: str, error: float | None, inherited: float | None, state: str = "passed") -> LayerError:
    return LayerError(
        module=module, call=f"modules/{module}", state=state, error=error, inherited=inherited, added=None
    )


def test_the_error_over_depth_is_drawn_with_the_first_wrong_module(tmp_path: Path) -> None:
    layers = (
        layer("a", 1e-3, None),
        layer("b", 0.0, 1e-3),
        layer("c", 0.1, 0.0, state="wrong"),
        layer("d", None, None),
    )
    view = view_of(tmp_path, verdict("model.layers.0", Status.PASSED), passed=True, layers=layers, spread="it grows")

    chart = next(chart for chart in view.charts if chart.name == "port.depth")
    table = next(table for table in view.tables if table.name == "port.layers")
    columns = {column.name: column.values for column in table.columns}
    assert (chart.marks[0].row, chart.note) == (2, "it grows")
    assert columns["log_error"] == [-3, -12, -1, None]
    assert columns["state"] == ["passed", "passed", "failed", "passed"]


def test_one_module_is_no_depth(tmp_path: Path) -> None:
    view = view_of(
        tmp_path, verdict("model.layers.0", Status.PASSED, pcc=None), passed=True, layers=(layer("a", 1e-3, None),)
    )

    assert view.charts == ()


def test_other_weights_are_the_first_card(tmp_path: Path) -> None:
    setup = (
        SetupCheck(aspect="weights", same=False, detail="the port has other weights for 1 tensor: w", decisive=True),
        SetupCheck(aspect="mode", same=None, detail="the port does not say"),
    )
    view = view_of(tmp_path, verdict("model.layers.0", Status.WRONG_VALUES), passed=False, setup=setup)

    assert (view.cards[0].value, view.cards[0].tone) == ("other weights", Tone.BAD)
    assert view.tables[0].columns[1].values == ["differs", "unknown"]


def test_a_set_up_that_agrees_or_is_unknown_does_not_alarm(tmp_path: Path) -> None:
    passed = verdict("model.layers.0", Status.PASSED)
    same = SetupCheck(aspect="weights", same=True, detail="8 of 8", decisive=True)
    dtype = SetupCheck(aspect="dtype", same=False, detail="bfloat16 in the port, float32 in the reference")
    unknown = SetupCheck(aspect="seed", same=None, detail="")

    tones = [view_of(tmp_path, passed, passed=True, setup=(*one, unknown)).cards[0] for one in ((same,), (dtype,), ())]

    assert [(card.title, card.tone) for card in tones] == [
        ("Set-up", Tone.GOOD),
        ("Set-up", Tone.WARNING),
        ("Port", Tone.GOOD),
    ]


def test_a_port_that_lacks_most_tensors_is_incomplete(tmp_path: Path) -> None:
    folder_of(transformer(2), tmp_path)
    found = Comparison(
        model="toy", candidate="a", passed=False, incomplete="5 of 6 outputs ... were not given", verdicts=()
    )
    codec.save(tmp_path / "comparison.json", found)

    (card, *_) = build(ReportFolder(tmp_path)).cards

    assert (card.value, card.detail) == ("incomplete", "5 of 6 outputs ... were not given")


def test_the_verdict_stands_first_in_one_sentence(tmp_path: Path) -> None:
    right = view_of(tmp_path / "a", verdict("model.layers.0", Status.PASSED), passed=True)
    part = view_of(tmp_path / "b", verdict("model.layers.0", Status.PASSED), passed=True, incomplete="1 of 9 is there")
    wrong = view_of(
        tmp_path / "c", verdict("model.layers.1", Status.WRONG_VALUES), passed=False, next_step="look at it"
    )

    banners = [view.banner for view in (right, part, wrong)]
    assert [(one.text, one.tone) for one in banners if one is not None] == [
        ("The port passes.", Tone.GOOD),
        ("The port passes, as far as it was given: 1 of 9 is there.", Tone.WARNING),
        ("The port is wrong, first at model.layers.1. Next: look at it.", Tone.BAD),
    ]
