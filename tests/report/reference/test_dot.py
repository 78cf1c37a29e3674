import shutil
import subprocess

import pytest

from tests.report.traces import HOSTILE, hostile_names, transformer
from torchstone.report.reference.flat_graph import flat_graph
from torchstone.report.reference.graph_files import dot_text, quoted
from torchstone.report.reference.page_drawing import shortened


def test_every_box_edge_and_frame_is_written() -> None:
    graph = flat_graph(transformer(2), ops=False)

    text = dot_text(graph, "toy")

    assert text.count(" [label=") == len(graph.boxes)
    assert text.count(" -> ") == len(graph.edges)
    assert text.count("subgraph cluster_") == len(graph.frames)
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_quoted_text_stays_in_its_quotes(text: str) -> None:
    inside = quoted(text)[1:-1]

    assert "\n" not in inside
    assert '"' not in inside.replace('\\"', "")


def test_a_long_text_is_cut_and_says_so() -> None:
    assert shortened("x" * 100) == "x" * 59 + "…"
    assert shortened("short") == "short"


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_hostile_names() -> None:
    text = dot_text(flat_graph(hostile_names(), ops=True), HOSTILE[0])

    done = subprocess.run(["dot", "-Tsvg"], input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
