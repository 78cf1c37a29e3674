import shutil
from pathlib import Path

import pytest

from tests.report.traces import transformer
from torchstone.report.reference import graph_files as files
from torchstone.report.reference.graph_files import Drawer, graph_files


def test_both_graphs_come_as_dot_svg_and_pdf() -> None:
    names = [name for one in graph_files(transformer(2)) for name in one.files]

    assert names == ["graph.dot", "graph.svg", "graph.pdf", "graph_ops.dot", "graph_ops.svg", "graph_ops.pdf"]


def test_without_graphviz_there_is_still_a_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    for one in graph_files(transformer(2)):
        svg, pdf = (content for name, content in one.files.items() if not name.endswith(".dot"))
        assert one.drawer is Drawer.OWN
        assert "not installed" in one.reason
        assert svg.startswith(b"<svg")
        assert pdf.startswith(b"%PDF")


def test_a_graphviz_that_fails_is_replaced_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho no fonts >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    (one, _) = graph_files(transformer(1))

    assert one.drawer is Drawer.OWN
    assert one.reason == "dot failed: no fonts"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_where_it_is_and_leaves_huge_graphs_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {one.drawer for one in graph_files(transformer(1))} == {Drawer.GRAPHVIZ}

    monkeypatch.setattr(files, "MOST_BOXES_FOR_DOT", 5)
    assert {one.drawer for one in graph_files(transformer(1))} == {Drawer.OWN}
