from pathlib import Path

import pytest

from torchstone.capture.trace_program import kind_of
from torchstone.errors import InputError
from torchstone.record.config import TargetKind


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("tests/test_net.py::test_forward[2-f32]", TargetKind.PYTEST),
        ("tests/test_net.py", TargetKind.PYTEST),
        ("checks/net_test.py", TargetKind.PYTEST),
        ("checks/net.py::TestNet::test_forward", TargetKind.PYTEST),
        ("net.py::load_model", TargetKind.MODEL),
        ("tiny:bert", TargetKind.MODEL),
        ("meta-llama/Llama-2-7b-hf", TargetKind.MODEL),
        ("package.module:build", TargetKind.MODEL),
    ],
)
def test_the_name_of_a_target_tells_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, kind: TargetKind
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(target.partition("::")[0])
    if file.suffix == ".py":
        file.parent.mkdir(exist_ok=True)
        file.touch()

    assert kind_of(target, ()) is kind


def test_a_lone_file_is_a_model_when_it_defines_one(tmp_path: Path) -> None:
    net, script = tmp_path / "net.py", tmp_path / "train.py"
    net.write_text("def load_model(): ...\n", encoding="utf-8")
    script.write_text("print('hello')\n", encoding="utf-8")

    assert kind_of(str(net), ()) is TargetKind.MODEL
    assert kind_of(str(net), ("--epochs", "1")) is TargetKind.SCRIPT
    assert kind_of(str(script), ()) is TargetKind.SCRIPT


def test_a_folder_of_tests_is_for_pytest_and_a_folder_of_a_model_is_not(tmp_path: Path) -> None:
    tests, model = tmp_path / "tests", tmp_path / "bert"
    tests.mkdir()
    model.mkdir()
    (model / "config.json").touch()

    assert kind_of(str(tests), ()) is TargetKind.PYTEST
    assert kind_of(str(model), ()) is TargetKind.MODEL


@pytest.mark.parametrize("text", [None, "def broken(:\n"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "train.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")

    with pytest.raises(InputError, match=r"train\.py"):
        kind_of(str(file), ())


@pytest.mark.parametrize("target", ["trian.py", "trian.py::load_model", "trian.py::test_it"])
def test_a_file_that_is_not_there_is_told_with_the_one_that_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    with pytest.raises(InputError, match=r"no file trian\.py; did you mean train\.py\?"):
        kind_of(target, ())


def test_a_folder_that_is_named_like_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "net.py").mkdir()

    with pytest.raises(InputError, match="is a folder; give a file in it"):
        kind_of(str(tmp_path / "net.py"), ())
