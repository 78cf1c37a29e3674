import json

import msgspec
import pytest

from torchstone.record.codec import decode, encode
from torchstone.record.formula import (
    Coverage,
    FlopAnalysis,
    FormulaCost,
    FormulaDatabase,
    FormulaEntry,
    FormulaModule,
    MemoryAnalysis,
    Quantity,
    Status,
    Validation,
)

FLOPS = FlopAnalysis(parameters=("B", "H"), formula_template="${B} * ${H}")
MEMORY = MemoryAnalysis(
    parameters=("B", "H", "dtype_bytes"),
    reads_template="1",
    writes_template="2",
    weights_template="3",
    module_depends=("a.Net",),
)


def entry(memory: MemoryAnalysis | None = MEMORY) -> FormulaEntry:
    return FormulaEntry(
        module_path="pkg.Net",
        flop_analysis=FLOPS,
        memory_analysis=memory,
        validation=Validation(status=Status.UNCHECKED),
    )


def test_each_quantity_has_its_template() -> None:
    found = {quantity: entry().template(quantity) for quantity in Quantity}

    assert found == {"flops": "${B} * ${H}", "reads": "1", "writes": "2", "intermediates": None, "weights": "3"}


@pytest.mark.parametrize("quantity", [quantity for quantity in Quantity if quantity is not Quantity.FLOPS])
def test_without_a_memory_analysis_bytes_are_not_known(quantity: Quantity) -> None:
    assert entry(None).template(quantity) is None
    assert entry(None).parameters(quantity) == ("B", "H")


def test_parameters_and_dependencies_are_those_of_the_analysis() -> None:
    assert entry().parameters(Quantity.FLOPS) == ("B", "H")
    assert entry().parameters(Quantity.READS) == ("B", "H", "dtype_bytes")
    assert entry().all_parameters == ("B", "H", "dtype_bytes")
    assert (entry().depends(Quantity.FLOPS), entry().depends(Quantity.WRITES)) == ((), ("a.Net",))


def test_a_database_survives_the_trip_through_json() -> None:
    database = FormulaDatabase(modules={"pkg__Net": entry()})

    assert decode(encode(database), FormulaDatabase, origin="x") == database


def test_an_entry_on_disk_has_every_key() -> None:
    keys = msgspec.json.decode(msgspec.json.encode(entry())).keys()

    assert {"module_path", "code_location", "flop_analysis", "memory_analysis", "validation"} <= keys
    assert {"domain", "versions", "evidence", "defaults", "aliases"} <= keys


def module(flops: int | None, coverage: Coverage = Coverage.FORMULA) -> FormulaModule:
    return FormulaModule(
        path="layer", class_name="net.Layer", coverage=coverage, calls=1, traced_flops=6, traced_bytes_read=4,
        traced_bytes_written=2, flops=flops, bytes_read=None if flops is None else 4,
        bytes_written=None if flops is None else 2,
    )  # fmt: skip


def test_a_module_agrees_when_all_three_numbers_are_as_traced() -> None:
    assert module(6).agrees
    assert not module(7).agrees
    assert module(None, Coverage.TRACED).agrees


def test_coverage_is_counted_by_where_numbers_come_from() -> None:
    cost = FormulaCost(model="net", modules=(module(6), module(7), module(None, Coverage.TRACED)), evaluation_s=0.1)

    counts = {one: cost.count(one) for one in Coverage}
    assert counts == {Coverage.FORMULA: 2, Coverage.DERIVED: 0, Coverage.PENDING: 0, Coverage.TRACED: 1}
    assert len(cost.disagreeing) == 1


def test_the_document_names_its_schema_and_what_disagrees() -> None:
    cost = FormulaCost(model="net", modules=(module(6), module(7)), evaluation_s=0.1)

    document = json.loads(encode(cost.document))

    assert list(document) == ["schema", "model", "coverage", "disagreeing", "evaluation_s", "modules"]
    assert document["schema"] == "torchstone/cost_by_formula/1"
    assert document["coverage"] == {"formula": 2, "derived now": 0, "pending": 0, "traced only": 0}
    assert document["disagreeing"] == ["layer"]
