"""Vectors from torch's own test database."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.sweeps import database
from tests.sweep.builders import mm
from torchstone.errors import InputError, MissingExtraError
from torchstone.workflows.sweep_generate import GenerateRequest, generate_vectors

needs_database = pytest.mark.skipif(find_spec("expecttest") is None, reason="torch's test database needs expecttest")


@needs_database
def test_the_samples_of_an_op_become_vectors_of_several_types_and_layouts(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    database(path, mm())

    made = generate_vectors(
        GenerateRequest(op="aten.mm.default", suite="opinfo", folder=tmp_path / "sweep", database=str(path))
    )

    assert {vector.op for vector in made.vectors} == {"aten.mm.default"}
    assert {vector.suite for vector in made.vectors} == {"opinfo"}
    assert all(vector.calls for vector in made.vectors)
    assert len({vector.cluster for vector in made.vectors}) > 2


@needs_database
def test_an_op_without_samples_is_an_error(tmp_path: Path) -> None:
    database(tmp_path / "x.db", mm())
    known = str(tmp_path / "x.db")
    request = GenerateRequest(op="aten.no_such_op.default", suite="opinfo", folder=tmp_path, database=known)

    with pytest.raises(InputError, match=r"no sample of op aten\.no_such_op\.default"):
        generate_vectors(request)


@pytest.mark.skipif(find_spec("expecttest") is not None, reason="expecttest is installed")
def test_without_the_extra_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"torchstone\[opinfo\]"):
        generate_vectors(GenerateRequest(op="aten.mm.default", suite="opinfo", folder=tmp_path))
