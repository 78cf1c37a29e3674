from pathlib import Path

import pytest

from tests.report.reference.test_kv_cache import cache, giving, layer, output
from torchstone.cost import price
from torchstone.errors import UnreadableFileError
from torchstone.record.reference import FunctionUse
from torchstone.report.reference.documents import write_documents
from torchstone.report.section import Table
from torchstone.report.sections.reference import document_tables


def tables_of(folder: Path) -> dict[str, Table]:
    trace = giving(output(cache(layer(1, 4, 16, 8))))
    uses = [FunctionUse(function="torch.relu", arguments="", output="", calls=3, modules=("", "a", "b"))]
    write_documents(folder, trace, price(trace), (64,), uses)
    return {table.name: table for table in document_tables(folder)}


def column(table: Table, name: str) -> list[object]:
    (found,) = (one for one in table.columns if one.name == name)
    return list(found.values)


def test_memory_has_a_row_for_each_type_and_a_column_for_each_length(tmp_path: Path) -> None:
    memory = tables_of(tmp_path)["reference.memory"]

    assert column(memory, "dtype")[:2] == ["float32 (as run)", "bfloat16"]
    assert column(memory, "cache_64")[:2] == [2 * 4 * 64 * 8 * 4, 2 * 4 * 64 * 8 * 2]


def test_functions_say_how_often_and_where(tmp_path: Path) -> None:
    functions = tables_of(tmp_path)["reference.functions"]

    assert [column(functions, name) for name in ("function", "calls", "modules")] == [
        ["torch.relu"], [3], ["(root) and 2 more"],
    ]  # fmt: skip


def test_a_folder_without_the_documents_has_no_tables_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert document_tables(tmp_path) == ()
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(UnreadableFileError, match=r"summary\.json cannot be read"):
        document_tables(tmp_path)
