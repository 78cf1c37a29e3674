from pathlib import Path

import pytest

from tests.sweep.builders import mm, vector
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.vector import VectorFile
from torchstone.sweep.folder import read_vectors, select, write_vectors


def file_of(module: str, *names: str, suite: str = "model_traced") -> VectorFile:
    return VectorFile(module=module, vectors=tuple(vector(mm(), id=name, module=module, suite=suite) for name in names))


def test_vectors_come_back_by_module(tmp_path: Path) -> None:
    write_vectors(tmp_path, [file_of("aten.mm.default", "k1-b"), file_of("aten.add.Tensor", "k1-a")])

    assert [one.module for one in read_vectors(tmp_path)] == ["aten.add.Tensor", "aten.mm.default"]


def test_a_suite_is_replaced_and_others_stay(tmp_path: Path) -> None:
    write_vectors(tmp_path, [file_of("m", "a", "b"), file_of("m", "c", suite="neighbours")])
    write_vectors(tmp_path, [file_of("m", "d")])

    assert [(one.suite, one.id) for one in read_vectors(tmp_path)[0].vectors] == [
        ("model_traced", "d"),
        ("neighbours", "c"),
    ]


def test_a_file_that_would_not_change_is_left_alone(tmp_path: Path) -> None:
    assert len(write_vectors(tmp_path, [file_of("m", "a")])) == 1
    assert write_vectors(tmp_path, [file_of("m", "a")]) == []


@pytest.mark.parametrize("module", ["a/../b", "x" * 300, "ttnn::add"])
def test_any_name_of_a_module_has_a_file_of_its_own_inside_the_folder(tmp_path: Path, module: str) -> None:
    (path,) = write_vectors(tmp_path, [file_of(module, "a")])

    assert path.parent == tmp_path / "vectors"
    assert read_vectors(tmp_path)[0].module == module


def test_a_folder_without_vectors_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="sweep generate"):
        read_vectors(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (path,) = write_vectors(tmp_path, [file_of("m", "a")])
    path.write_bytes(path.read_bytes()[:40])

    with pytest.raises(UnreadableFileError, match=path.name):
        read_vectors(tmp_path)


FILES = [file_of("aten.mm.default", "k1-aa1", "k1-ab2"), file_of("aten.mm.out", "k1-cc", suite="neighbours")]


def test_modules_are_selected_by_the_beginning_of_their_names() -> None:
    assert [one.id for one in select(FILES, modules=["aten.mm"])] == ["k1-aa1", "k1-ab2", "k1-cc"]
    assert select(FILES, modules=["aten.m"]) == []
    assert [one.id for one in select(FILES, suites=["neighbours"])] == ["k1-cc"]


def test_a_vector_is_selected_by_the_beginning_of_its_id() -> None:
    assert [one.id for one in select(FILES, vector_id="k1-ab")] == ["k1-ab2"]
    assert [one.id for one in select(FILES, vector_id="cc")] == ["k1-cc"]


@pytest.mark.parametrize(("identity", "what"), [("zz", "no vector"), ("k1-a", "2 vectors")])
def test_an_id_that_names_none_or_several_is_refused(identity: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        select(FILES, vector_id=identity)
