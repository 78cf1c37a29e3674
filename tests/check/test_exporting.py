import json
from pathlib import Path

import pytest

from tests.check import planted_net
from tests.check.held import kept_model
from torchstone.check.export_ir import export_ir, read_about, settings_with
from torchstone.check.settings import Folder, Settings
from torchstone.errors import InputError, UnreadableFileError

MODEL = f"{planted_net.__file__}::load_model"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """What a check of the model leaves behind for an export."""
    kept = kept_model(planted_net.load_model(), planted_net.get_inputs(), tmp_path_factory.mktemp("export"))
    about: dict[str, object] = {
        "model": MODEL,
        "inputs": None,
        "options": {},
        "backend": "eager",
        "backend_options": {},
        "python": None,
    }
    kept.folder.about.write_text(json.dumps(about))
    return kept.folder


@pytest.mark.heavy
def test_one_module_is_exported_by_the_beginning_of_its_id(folder: Folder) -> None:
    settings = settings_with(Settings(backend=""), read_about(folder))

    unit, result = export_ir(folder.unique_modules, "mod_003", settings)

    assert unit.startswith("mod_003_")
    assert [(folder.path / file).is_file() for file in result.irs] == [True]


def test_an_unknown_module_is_refused(folder: Folder) -> None:
    with pytest.raises(InputError, match="there is no module 'mod_999'"):
        export_ir(folder.unique_modules, "mod_999", Settings(backend="eager"))


def test_a_module_that_was_never_called_is_told(folder: Folder) -> None:
    with pytest.raises(InputError, match="mod_001_layers was never called"):
        export_ir(folder.unique_modules, "mod_001_layers", Settings(backend="eager"))


def test_a_folder_without_a_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="has no check to export from"):
        read_about(Folder(path=tmp_path))


def test_a_module_in_memory_cannot_be_loaded_again(folder: Folder, tmp_path: Path) -> None:
    other = Folder(path=tmp_path)
    other.work.mkdir()
    for name in (folder.recorded_marker, folder.trace):
        (tmp_path / name.relative_to(folder.path)).write_bytes(name.read_bytes())
    other.about.write_text(json.dumps({"model": ""}))

    with pytest.raises(InputError, match="module in memory"):
        read_about(other)


def test_another_backend_may_be_given(folder: Folder) -> None:
    about = read_about(folder)

    assert settings_with(Settings(backend="inductor"), about).backend == "inductor"
    assert settings_with(Settings(backend=""), about).backend == "eager"
