from pathlib import Path

import pytest

from tests.cli.sweeps import database, unary
from tests.sweep.builders import mm
from torchstone.errors import InputError
from torchstone.sweep.folder import read_vectors
from torchstone.workflows.sweep_generate import GenerateRequest, find_module, generate_vectors


def test_vectors_are_generated_in_one_call_and_written(tmp_path: Path) -> None:
    address = database(tmp_path / "x.db", mm(2, 3, 4), unary("aten.sin.default"))
    request = GenerateRequest(all_ops=True, folder=tmp_path / "out", database=address)

    result = generate_vectors(request)

    assert {vector.id for vector in result.vectors} == {mm(2, 3, 4).key, unary("aten.sin.default").key}
    assert (result.summary.vectors, result.summary.valid, result.summary.calls.all) == (2, 2, 3)
    assert len(result.changed_files) == 2
    written = [vector for file in read_vectors(tmp_path / "out") for vector in file.vectors]
    assert sorted(written, key=lambda one: one.id) == sorted(result.vectors, key=lambda one: one.id)
    assert generate_vectors(request).changed_files == ()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (GenerateRequest(), "exactly one of --op, --model, --all and --module-name"),
        (GenerateRequest(op="aten.mm.default", all_ops=True), "exactly one of"),
        (GenerateRequest(all_ops=True, roles=("magic",)), "--roles 'magic' is not a list of roles"),
        (GenerateRequest(all_ops=True, roles=()), "--roles"),
        (GenerateRequest(all_ops=True, budget="soon"), "--budget 'soon'"),
    ],
)
def test_a_wrong_combination_names_the_option(request_: GenerateRequest, said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate_vectors(request_)


def test_a_module_is_named_by_its_place_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "eltwise").mkdir()
    (tmp_path / "eltwise" / "add.py").touch()

    assert find_module("eltwise.add", tmp_path) == ("eltwise.add", tmp_path / "eltwise" / "add.py")
    assert find_module(str(tmp_path / "eltwise" / "add.py"), tmp_path)[0] == "eltwise.add"
    with pytest.raises(InputError, match=r"eltwise\.add"):
        find_module("eltwise.ad", tmp_path)
    with pytest.raises(InputError, match="name one with --modules"):
        find_module("eltwise.add", tmp_path / "none")
