import msgspec
import pytest

from torchstone.record.codec import decode, encode
from torchstone.record.formula import (
    FlopAnalysis,
    FormulaDatabase,
    FormulaEntry,
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
