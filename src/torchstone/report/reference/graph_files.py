"""The graph of a model as files: DOT of the whole, and pages for people as SVG and PDF."""

from collections import defaultdict

from torchstone.record.base import Record
from torchstone.record.trace import Trace
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph, flat_graph
from torchstone.report.reference.graph_pages import Pages, graph_pages
from torchstone.report.reference.page_drawing import can_be_read, draw_page, pdf_of, shortened, svg_of

# --- DOT text; module frames are clusters ---


_STYLES = {
    "module": 'style="rounded,filled", fillcolor="#dbe9fb"',
    "op": 'style="filled", fillcolor="#ffffff"',
    "input": 'style="filled", fillcolor="#e2f3e2"',
    "output": 'style="filled", fillcolor="#fdebd0"',
}


def dot_text(graph: FlatGraph, title: str) -> str:
    """The graph in the language of Graphviz."""
    boxes: defaultdict[int, list[Box]] = defaultdict(list)
    frames: defaultdict[int, list[int]] = defaultdict(list)
    for box in graph.boxes:
        boxes[box.group].append(box)
    for number, frame in enumerate(graph.frames):
        frames[frame.parent].append(number)
    lines = [
        f"digraph {quoted(shortened(title))} {{",
        '  graph [rankdir=TB, fontname="Helvetica", fontsize=11, nodesep=0.25, ranksep=0.35];',
        '  node [shape=box, fontname="Helvetica", fontsize=10, height=0.3, margin="0.08,0.04"];',
        '  edge [arrowsize=0.6, color="#555555"];',
    ]
    lines += _inside(NO_GROUP, graph, boxes, frames, "  ")
    lines += [f"  {graph.boxes[source].name} -> {graph.boxes[target].name};" for source, target in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _inside(
    group: int,
    graph: FlatGraph,
    boxes: defaultdict[int, list[Box]],
    frames: defaultdict[int, list[int]],
    indent: str,
) -> list[str]:
    lines = [f"{indent}{box.name} [label={_label(box)}, {_STYLES[box.kind]}];" for box in boxes[group]]
    for number in frames[group]:
        frame = graph.frames[number]
        lines.append(f"{indent}subgraph cluster_{number} {{")
        label = quoted(f"{shortened(frame.label)}: {shortened(frame.detail)}")
        lines.append(f'{indent}  label={label}; labeljust=l; style="rounded"; color="#8899aa"; fontcolor="#445566";')
        lines += _inside(number, graph, boxes, frames, indent + "  ")
        lines.append(f"{indent}}}")
    return lines


def _label(box: Box) -> str:
    detail = f"\\n{_escaped(shortened(box.detail))}" if box.detail else ""
    return f'"{_escaped(shortened(box.label))}{detail}"'


def quoted(text: str) -> str:
    """A text as a DOT string."""
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


# --- The files of a reference: module graph and op graph as DOT, SVG and PDF ---


MODULE_GRAPH = "graph"
OP_GRAPH = "graph_ops"
PAGES_FOLDER = "pages"  # of the pictures after the first


class GraphFiles(Record, frozen=True, kw_only=True):
    """The files of one graph by name, and the pages that they show."""

    graph: FlatGraph
    pages: Pages
    files: dict[str, bytes]


def graph_files(trace: Trace) -> tuple[GraphFiles, ...]:
    """The module graph and the op graph."""
    title = trace.provenance.model or "model"
    return tuple(
        draw(flat_graph(trace, ops=ops), name, title) for name, ops in ((MODULE_GRAPH, False), (OP_GRAPH, True))
    )


def draw(graph: FlatGraph, name: str, title: str) -> GraphFiles:
    """DOT text of the whole graph, an SVG for each page, and a PDF with all pages."""
    pages = graph_pages(graph, shortened(title), can_be_read)
    drawings = [draw_page(page) for page in pages.pages]
    files = {f"{name}.dot": dot_text(graph, title).encode(), f"{name}.pdf": pdf_of(drawings)}
    for page, drawing in zip(pages.pages, drawings, strict=True):
        files[svg_name(name, page.number)] = svg_of(drawing)
    return GraphFiles(graph=graph, pages=pages, files=files)


def svg_name(name: str, page: int) -> str:
    """The file of a page: graph.svg, then pages/graph_2.svg and so on."""
    return f"{name}.svg" if page == 1 else f"{PAGES_FOLDER}/{name}_{page}.svg"
