from pathlib import Path

from tests.report.traces import transformer
from torchstone.cost import price
from torchstone.report.reference.documents import write_documents
from torchstone.report.reference.graph_files import graph_files


def test_both_graphs_come_as_dot_pdf_and_a_picture_for_each_page() -> None:
    modules, ops = graph_files(transformer(2))

    assert list(modules.files) == ["graph.dot", "graph.pdf", "graph.svg", "pages/graph_2.svg"]
    pages = range(2, len(ops.pages.pages) + 1)
    pictures = ["graph_ops.svg", *(f"pages/graph_ops_{number}.svg" for number in pages)]
    assert list(ops.files) == ["graph_ops.dot", "graph_ops.pdf", *pictures]


def test_pages_of_an_earlier_reference_are_removed(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name in ("graph_99.svg", "graph_ops_99.svg", "graph_mine.svg"):
        (tmp_path / "pages" / name).write_text("earlier")

    write_documents(tmp_path, transformer(2), price(transformer(2)))

    names = {path.name for path in (tmp_path / "pages").iterdir()}
    assert "graph_mine.svg" in names
    assert not {"graph_99.svg", "graph_ops_99.svg"} & names
