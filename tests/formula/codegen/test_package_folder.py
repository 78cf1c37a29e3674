from pathlib import Path

import pytest

from torchstone.errors import InputError
from torchstone.formula.codegen.package import MARK, write_package

TEXTS = {"__init__.py": f"{MARK}\n", "torch/net.py": "x = 1\n"}


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_package_is_written_with_its_folders(tmp_path: Path) -> None:
    package = write_package(tmp_path / "new" / "folder", TEXTS)

    assert package == tmp_path / "new" / "folder" / "generated_modules"
    assert names(package) == set(TEXTS)


def test_a_package_of_before_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_package(tmp_path, {**TEXTS, "old.py": ""})
    package = write_package(tmp_path, TEXTS)

    assert names(package) == set(TEXTS)
    assert [path.name for path in tmp_path.iterdir()] == ["generated_modules"]


@pytest.mark.parametrize("file", ["__init__.py", "other.py"])
def test_a_package_of_another_origin_is_not_replaced(tmp_path: Path, file: str) -> None:
    foreign = tmp_path / "generated_modules" / file
    foreign.parent.mkdir()
    foreign.write_text("mine")

    with pytest.raises(InputError, match="was not written by"):
        write_package(tmp_path, TEXTS)
    assert foreign.read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"cannot write to .*; choose another --out"):
        write_package(tmp_path / "file", TEXTS)
