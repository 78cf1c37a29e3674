"""Code of the user's is named before it is executed, whoever executes it."""

from pathlib import Path

import pytest

from torchstone.errors import TorchstoneError
from torchstone.workflows.memory import ScriptRequest, run_memory
from torchstone.workflows.model_source import name_targets
from torchstone.workflows.progress import NotesOnce, Silent


class Notes(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def named(*given: str) -> list[str]:
    notes = Notes()
    name_targets(notes, *given)
    return notes.said


def test_files_and_modules_are_named_once_and_names_of_models_and_backends_are_not(tmp_path: Path) -> None:
    net, chip = tmp_path / "net.py", tmp_path / "chip.py"
    for file in (net, chip):
        file.touch()

    assert named(f"{net}::load", f"{net}::inputs", f"{chip}::Chip") == [f"executing {net}, {chip} ..."]
    assert named("package.backends:Chip") == ["executing package.backends ..."]
    assert named("tiny:bert", "default:bert", "gpt2", "inductor", "") == []


def test_a_file_that_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(TorchstoneError, match=r"chip\.py does not exist"):
        named(f"{tmp_path}/chip.py::Chip")


def test_several_workflows_name_a_file_once() -> None:
    notes = Notes()
    together = NotesOnce(notes)

    for text in ("executing net.py ...", "wrote a", "executing net.py ...", "wrote b"):
        together.note(text)

    assert notes.said == ["executing net.py ...", "wrote a", "wrote b"]


def test_a_script_whose_memory_is_recorded_is_named_first(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text("print('ran')\n", encoding="utf-8")
    notes = Notes()

    run_memory(ScriptRequest(script=script, directory=tmp_path / "out"), notes)

    assert notes.said[0] == f"executing {script} ..."
