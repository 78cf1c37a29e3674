from pathlib import Path

import pytest

from tests.sweep.builders import mm, result, run, vector
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.check import Outcome
from torchstone.record.vector import SweepPlan, VectorFile
from torchstone.sweep.folder import (
    RunFolder,
    find_run,
    new_run,
    new_run_name,
    read_vectors,
    runs_in,
    select,
    unfinished,
    write_vectors,
)
from torchstone.temporary import replacing


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


def begun(folder: Path, name: str, *vectors: str) -> RunFolder:
    plan = SweepPlan(run=run(name, finished=False), vectors=tuple(vector(mm(), id=one) for one in vectors))
    return new_run(folder, plan)


def test_an_interrupted_run_knows_what_it_did(tmp_path: Path) -> None:
    folder = begun(tmp_path, "r1", "a", "b")
    with folder.journal() as journal:
        journal.keep("b", result("b", Outcome.WRONG))

    found = folder.run()

    assert not found.finished
    assert [one.id for one in found.results] == ["b"]
    assert [one.name for one in unfinished(tmp_path)] == ["r1"]


def test_results_stand_in_the_order_of_the_plan_and_the_last_word_counts(tmp_path: Path) -> None:
    folder = begun(tmp_path, "r1", "a", "b")
    with folder.journal() as journal:
        for one in (result("b"), result("a", Outcome.CRASHED), result("a")):
            journal.keep(one.id, one)

    folder.finish(folder.gathered(finished=True, elapsed_s=2.0))

    assert [(one.id, one.outcome) for one in folder.run().results] == [("a", Outcome.PASSED), ("b", Outcome.PASSED)]
    assert list(unfinished(tmp_path)) == []


def test_a_run_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    for name in ("20260101-aa", "20260102-bb"):
        begun(tmp_path, name)

    assert [one.name for one in runs_in(tmp_path)] == ["20260101-aa", "20260102-bb"]
    assert find_run(tmp_path, "last").name == "20260102-bb"
    assert find_run(tmp_path, "20260101").name == "20260101-aa"


@pytest.mark.parametrize(("name", "what"), [("1999", "no run"), ("2026", "2 runs")])
def test_a_name_that_means_none_or_several_is_refused_with_those_there_are(
    tmp_path: Path, name: str, what: str
) -> None:
    begun(tmp_path, "20260101-aa")
    begun(tmp_path, "20260102-bb")

    with pytest.raises(UnreadableFileError, match=rf"{what}.*20260102-bb"):
        find_run(tmp_path, name)


def test_names_of_runs_are_never_the_same() -> None:
    assert len({new_run_name() for _ in range(100)}) == 100


def test_what_is_left_of_a_run_that_was_killed_before_it_had_a_plan_is_removed(tmp_path: Path) -> None:
    left, written = tmp_path / "runs" / "20250101T000000-abcdef", tmp_path / "runs" / "20250101T000000-fedcba"
    left.mkdir(parents=True)
    (left / ".1-12345678.part").touch()
    with replacing(written / "plan.json"):
        begun(tmp_path, "r2", "a")
        assert not left.exists()
    assert written.exists()
