"""A database in the form of the original design is read, and nothing in it is taken as validated."""

import json
from pathlib import Path

import pytest

from torchstone.errors import UnreadableFileError
from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, load_file, load_formulas
from torchstone.record.formula import Quantity, Status

LINEAR = {
    "code_location": {"file": "torch/nn/modules/linear.py", "line_start": 50, "line_end": 130},
    "flop_analysis": {
        "thinking_process": "A product of matrices and a bias.",
        "parameters": ["N", "in_features", "out_features"],
        "formula_template": "2 * ${N} * ${in_features} * ${out_features} + ${N} * ${out_features}",
        "module_depends": [],
        "breakdown": {"product": "2 * ${N} * ${in_features} * ${out_features}", "bias": "${N} * ${out_features}"},
    },
    "memory_analysis": {
        "reads_template": "(${N} * ${in_features} + ${in_features} * ${out_features}) * ${dtype_bytes}",
        "writes_template": "${N} * ${out_features} * ${dtype_bytes}",
        "intermediates_template": "0",
    },
    "validation": {"status": "pending", "validator": None, "date": None, "notes": None},
}
PUBLISHED = {"my__layers__Dense": LINEAR, "my__layers__Other": {**LINEAR, "validation": {"status": "validated"}}}


def test_a_database_without_a_schema_is_read_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "module_db.json").write_text(json.dumps({"modules": PUBLISHED}))

    formulas = load_formulas(tmp_path)

    assert compute(formulas, "my.layers.Dense", Quantity.FLOPS, {"N": 2, "in_features": 3, "out_features": 5}) == 70
    reads = {"N": 2, "in_features": 3, "out_features": 5, "dtype_bytes": 2}
    assert compute(formulas, "my.layers.Dense", Quantity.READS, reads) == 42
    assert any("has no schema" in one for one in formulas.problems)


def test_entries_may_stand_at_the_top(tmp_path: Path) -> None:
    file = tmp_path / "module_db.json"
    file.write_text(json.dumps(PUBLISHED))
    assert set(load_file(file).modules) == set(PUBLISHED)


def test_what_names_no_validator_counts_as_unchecked(tmp_path: Path) -> None:
    file = tmp_path / "module_db.json"
    file.write_text(json.dumps(PUBLISHED))
    formulas = Formulas(entries=load_file(file).modules)
    assert {entry.validation.status for entry in formulas.entries.values()} == {Status.UNCHECKED}


@pytest.mark.parametrize("text", ["{}", "[]", '{"modules": {"a": 1}}', "{", '{"modules": {"a": {}}}'])
def test_other_documents_are_refused_as_before(tmp_path: Path, text: str) -> None:
    file = tmp_path / "module_db.json"
    file.write_text(text)
    with pytest.raises(UnreadableFileError):
        load_file(file)
