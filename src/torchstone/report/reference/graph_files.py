"""The graph of a model as files: DOT, SVG and PDF of the module graph, and of the op graph."""

import shutil
import subprocess
from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.trace import Trace
from torchstone.report.reference.dot import dot_text
from torchstone.report.reference.flat_graph import FlatGraph, flat_graph
from torchstone.report.reference.own_drawing import lay_out, pdf_of, svg_of

MODULE_GRAPH = "graph"
OP_GRAPH = "graph_ops"
MOST_BOXES_FOR_DOT = 1500  # Graphviz takes minutes for more
_DEADLINE_S = 20  # a picture that takes longer is no quick look; some graphs of 400 boxes take minutes
_FORMATS = ("svg", "pdf")


class Drawer(StrEnum):
    """Who laid out a picture."""

    GRAPHVIZ = "Graphviz"
    OWN = "torchstone"


class GraphFiles(Record, frozen=True, kw_only=True):
    """The files of one graph by name, and who drew them."""

    graph: FlatGraph
    files: dict[str, bytes]
    drawer: Drawer
    reason: str  # why Graphviz did not draw it; "" when it did


def graph_files(trace: Trace) -> tuple[GraphFiles, ...]:
    """The module graph and the op graph."""
    title = trace.provenance.model or "model"
    return tuple(
        draw(flat_graph(trace, ops=ops), name, title) for name, ops in ((MODULE_GRAPH, False), (OP_GRAPH, True))
    )


def draw(graph: FlatGraph, name: str, title: str) -> GraphFiles:
    """DOT text, and pictures by Graphviz where it is there and can, by the own layout otherwise."""
    text = dot_text(graph, title).encode()
    reason = _why_not_graphviz(graph)
    pictures: dict[str, bytes] = {}
    if not reason:
        pictures, reason = _by_graphviz(text)
    if reason:
        drawing = lay_out(graph)
        pictures = {"svg": svg_of(drawing, title), "pdf": pdf_of(drawing)}
    files = {f"{name}.dot": text} | {f"{name}.{kind}": content for kind, content in pictures.items()}
    return GraphFiles(graph=graph, files=files, drawer=Drawer.OWN if reason else Drawer.GRAPHVIZ, reason=reason)


def _why_not_graphviz(graph: FlatGraph) -> str:
    if shutil.which("dot") is None:
        return "the program dot of Graphviz is not installed"
    if len(graph.boxes) > MOST_BOXES_FOR_DOT:
        return f"{len(graph.boxes)} boxes are too many for Graphviz"
    return ""


def _by_graphviz(text: bytes) -> tuple[dict[str, bytes], str]:
    program = shutil.which("dot") or "dot"
    pictures: dict[str, bytes] = {}
    for kind in _FORMATS:
        try:
            done = subprocess.run(  # noqa: S603 - our own text goes in through a pipe
                [program, f"-T{kind}"], input=text, capture_output=True, check=False, timeout=_DEADLINE_S
            )
        except subprocess.TimeoutExpired:
            return {}, f"dot took longer than {_DEADLINE_S} s"
        except OSError as error:
            return {}, f"dot failed: {type(error).__name__}"
        if done.returncode or not done.stdout:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            return {}, f"dot failed: {words[-1] if words else 'exit code ' + str(done.returncode)}"
        pictures[kind] = done.stdout
    return pictures, ""
