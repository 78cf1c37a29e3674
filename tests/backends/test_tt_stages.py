from pathlib import Path

import pytest

from torchstone.backends.tt import STAGES, StageFile, read_stages, stage_of


def written(folder: Path, *names: str) -> Path:
    (folder / "irs").mkdir()
    for name in names:
        (folder / "irs" / f"{name}.mlir").write_text(name, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shlo_compiler_mlp_bs4_g0_1755", StageFile("shlo_compiler", 0, 1755)),
        ("shlo_compiler_cleaned_1755", StageFile("shlo_compiler_cleaned", 0, 1755)),
        ("ttnn_mlp_bs4_g2_1755", StageFile("ttnn", 2, 1755)),
        ("ttnn_runtime_mlp_bs4_g0_1755", StageFile("ttnn_runtime", 0, 1755)),
        ("vhlo_1755", StageFile("vhlo", 0, 1755)),
        ("ttmetal_mlp_bs4_g0_1755", StageFile("ttmetal", 0, 1755)),
        ("notes", StageFile("notes", 0, 0)),
    ],
)
def test_the_longest_stage_that_fits_counts(name: str, found: StageFile) -> None:
    assert stage_of(name, "mlp_bs4") == found


def test_a_model_named_like_a_stage_changes_nothing() -> None:
    assert stage_of("ttnn_runtime_g0_17", "runtime").stage == "ttnn"
    assert stage_of("ttnn_runtime_runtime_g0_17", "runtime").stage == "ttnn_runtime"
    assert stage_of("ttir_a_b_g0_17", "a/b").stage == "ttir"


def test_stages_come_in_the_order_of_the_compiler(tmp_path: Path) -> None:
    written(tmp_path, *(f"{stage}_m_g0_1" for stage in reversed(STAGES)), "zzz_m_g0_1")

    assert list(read_stages(tmp_path, "m")) == [*STAGES, "zzz"]


def test_further_graphs_stand_beside_and_the_newest_dump_counts(tmp_path: Path) -> None:
    written(tmp_path, "ttir_m_g0_1", "ttir_m_g0_2", "ttir_m_g1_1", "ttir_m_g10_1", "ttir_m_g2_1")

    assert read_stages(tmp_path, "m") == {
        "ttir": "ttir_m_g0_2",
        "ttir.g1": "ttir_m_g1_1",
        "ttir.g2": "ttir_m_g2_1",
        "ttir.g10": "ttir_m_g10_1",
    }


def test_a_folder_without_dumps_has_no_stages(tmp_path: Path) -> None:
    assert read_stages(tmp_path) == {}
