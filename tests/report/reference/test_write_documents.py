from pathlib import Path

from tests.report.traces import transformer
from torchstone.cost import price
from torchstone.report.reference.documents import write_documents


def test_every_document_is_written_and_the_same_each_time(tmp_path: Path) -> None:
    trace = transformer(2)
    for name in ("a", "b"):
        write_documents(tmp_path / name, trace, price(trace))

    first, second = ({path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")} for name in ("a", "b"))
    assert first == second
    assert {"summary.txt", "operators.csv", "tensors.csv", "hierarchy.txt", "parameters.csv", "graph.svg"} <= set(first)
    assert all(first.values())
