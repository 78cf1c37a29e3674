import json

from torchstone.record.codec import encode
from torchstone.record.formula import Coverage, FormulaCost, FormulaModule


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
