from pathlib import Path

import msgspec
import pytest

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.record import codec
from torchstone.record.reference import (
    Box,
    Check,
    Checklist,
    Determinism,
    Drift,
    GoldenData,
    GoldenTensor,
    Rebuild,
    Role,
    Weights,
    WeightsKind,
    WeightsSource,
)
from torchstone.report.section import ReportFolder, SectionView, Tone
from torchstone.report.sections.reference import build

GOLDEN = GoldenData(
    model="toy",
    rebuild=Rebuild(model="toy"),
    seed=3,
    dtypes=("float32",),
    versions={},
    threads=2,
    created="",
    inputs=None,
    outputs=None,
    tensors=(
        GoldenTensor(name="inputs/x", role=Role.INPUT, shape=(2,), dtype="float32"),
        GoldenTensor(name="outputs", role=Role.OUTPUT, shape=(2,), dtype="float32", reason="it is quantised"),
    ),
    weights=Weights(sha256="ab", tensors=1, size_bytes=2048),
)


def view_of(folder: Path, *, passed: bool = True, **more: object) -> SectionView:
    folder_of(transformer(1), folder)
    check = Check(title="read back", passed=passed, detail="2 of 2")
    boxes = (Box(name="golden_data", title="Golden data", files=(), checks=(check,)),)
    codec.save(folder / "golden_data.json", msgspec.structs.replace(GOLDEN, **more))
    codec.save(folder / "checklist.json", Checklist(model="toy", complete=passed, boxes=boxes))
    return build(ReportFolder(folder))


@pytest.mark.parametrize(("passed", "tone"), [(True, Tone.GOOD), (False, Tone.BAD)])
def test_the_checklist_is_the_first_card(passed: bool, tone: Tone, tmp_path: Path) -> None:  # noqa: FBT001
    view = view_of(tmp_path, passed=passed)

    assert view.cards[0].tone is tone
    assert view.cards[0].value == f"{int(passed)} of 1 boxes"
    assert list(view.tables[0].columns[2].values) == ["passed" if passed else "failed"]


@pytest.mark.parametrize("found", list(Determinism))
def test_how_sure_the_data_is_has_a_card(found: Determinism, tmp_path: Path) -> None:
    card = view_of(tmp_path, determinism=found).cards[2]

    assert (card.tone is Tone.GOOD) is (found is Determinism.EQUAL)


def test_what_is_not_known_is_a_note(tmp_path: Path) -> None:
    drift = Drift(name="outputs", max_abs=1.0, first_seen="")

    notes = " ".join(view_of(tmp_path, drifts=(drift,), not_called=("a", "b")).notes)

    assert "the values of outputs are not saved: it is quantised" in notes
    assert "2 modules" in notes
    assert "outputs differs between runs" in notes
    assert "--intermediates" in notes


@pytest.mark.parametrize("kind", list(WeightsKind))
def test_where_the_weights_come_from_stands_above_everything(kind: WeightsKind, tmp_path: Path) -> None:
    source = WeightsSource(kind=kind, location="somewhere", files={"model.safetensors": "cd"}, drawn=("head.weight",))
    weights = msgspec.structs.replace(GOLDEN.weights, source=source)

    view = view_of(tmp_path, weights=weights, banner=source.banner)

    assert view.banner is not None
    assert view.banner.text.lower() == f"{source.banner}.".lower()
    is_random = kind in (WeightsKind.RANDOM, WeightsKind.PARTLY_RANDOM)
    assert (view.banner.tone is Tone.WARNING) is is_random
    assert view.cards[1].tone is view.banner.tone
    assert "ab" in view.cards[1].detail


def test_golden_data_of_an_earlier_version_has_no_banner(tmp_path: Path) -> None:
    view = view_of(tmp_path)

    assert view.banner is None
    assert view.cards[1].value == "unknown"
