"""The graph of a model as files: DOT, SVG and PDF, drawn by Graphviz or without it."""

import shutil
import subprocess
from collections import defaultdict
from enum import StrEnum
from html import escape

from torchstone.record.base import Record
from torchstone.record.trace import Trace
from torchstone.report.layout import BOX_PX, ROW_PX, place
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph, flat_graph

# --- DOT text; module frames are clusters ---


_STYLES = {
    "module": 'style="rounded,filled", fillcolor="#dbe9fb"',
    "op": 'style="filled", fillcolor="#ffffff"',
    "input": 'style="filled", fillcolor="#e2f3e2"',
    "output": 'style="filled", fillcolor="#fdebd0"',
}
_LONGEST = 60


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


def shortened(text: str) -> str:
    """A text that fits into a box."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# --- SVG and PDF without Graphviz; module frames are named in the labels ---


_CHARACTER_PX = 6.2
_PADDING_PX = 16
_MARGIN_PX = 24
_FILLS = {"module": "#dbe9fb", "op": "#ffffff", "input": "#e2f3e2", "output": "#fdebd0"}
_LONGEST_PDF_PT = 14_400  # what readers show of one page


class PlacedBox(Record, frozen=True, kw_only=True):
    """A box with its place: its left upper corner, y downwards."""

    x: float
    y: float
    width: float
    label: str
    detail: str
    fill: str


class OwnDrawing(Record, frozen=True, kw_only=True):
    """Boxes and lines with their places."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]


def lay_out(graph: FlatGraph) -> OwnDrawing:
    """Rows by longest path, then side by side."""
    texts = [(_box_label(box, graph), shortened(box.detail)) for box in graph.boxes]
    widths = [round(max(len(label), len(detail)) * _CHARACTER_PX + _PADDING_PX) for label, detail in texts]
    inputs = sum(box.kind == "input" for box in graph.boxes)
    placed = place(widths, graph.edges, inputs=inputs)
    left = min((x - width / 2 for x, width in zip(placed.x, widths, strict=True)), default=0)
    left = min([left, *(track for track in placed.tracks if track is not None)]) - _MARGIN_PX
    right = max((x + width / 2 for x, width in zip(placed.x, widths, strict=True)), default=0)
    right = max([right, *(track for track in placed.tracks if track is not None)]) + _MARGIN_PX
    top = min(placed.rows, default=0)
    centres = [(x - left, (row - top) * ROW_PX + _MARGIN_PX) for x, row in zip(placed.x, placed.rows, strict=True)]
    boxes = tuple(
        PlacedBox(x=x - width / 2, y=y, width=width, label=label, detail=detail, fill=_FILLS[box.kind])
        for (x, y), width, (label, detail), box in zip(centres, widths, texts, graph.boxes, strict=True)
    )
    lines = []
    for (source, target), track in zip(graph.edges, placed.tracks, strict=True):
        (x0, y0), (x1, y1) = centres[source], centres[target]
        between = [] if track is None else [(track - left, y0 + ROW_PX - 8), (track - left, y1 - 24)]
        lines.append(((x0, y0 + BOX_PX), *between, (x1, y1)))
    height = (max(placed.rows, default=0) - top) * ROW_PX + BOX_PX + 2 * _MARGIN_PX
    return OwnDrawing(width=right - left, height=height, boxes=boxes, lines=tuple(lines))


def _box_label(box: Box, graph: FlatGraph) -> str:
    """Ops say which module they stand in: there are no frames."""
    if box.kind == "op" and box.group != NO_GROUP:
        return shortened(f"{box.label} in {graph.frames[box.group].label}")
    return shortened(box.label)


def svg_of(drawing: OwnDrawing, title: str) -> bytes:
    """The drawing as SVG."""
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for line in drawing.lines:
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="#555" marker-end="url(#tip)"/>')
    for box in drawing.boxes:
        parts.append(_svg_box(box))
    return "\n".join([*parts, "</svg>"]).encode() + b"\n"


def _svg_box(box: PlacedBox) -> str:
    middle = box.x + box.width / 2
    text = 'text-anchor="middle" font-family="Helvetica, Arial, sans-serif"'
    return (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{BOX_PX}" rx="4" fill="{box.fill}" '
        f'stroke="#333"/><text x="{middle:.0f}" y="{box.y + 19:.0f}" font-size="11" {text}>{escape(box.label)}</text>'
        f'<text x="{middle:.0f}" y="{box.y + 35:.0f}" font-size="9" fill="#444" {text}>{escape(box.detail)}</text>'
    )


def pdf_of(drawing: OwnDrawing) -> bytes:
    """The drawing as a PDF of one page, in the fonts every reader has."""
    scale = min(1.0, _LONGEST_PDF_PT / max(drawing.width, drawing.height, 1))
    parts = [f"{scale:.4f} 0 0 {scale:.4f} 0 0 cm 0.33 G 0.8 w"]
    for line in drawing.lines:
        (x, y), *rest = line
        way = " ".join(f"{px:.1f} {drawing.height - py:.1f} l" for px, py in rest)
        parts.append(f"{x:.1f} {drawing.height - y:.1f} m {way} S")
    for box in drawing.boxes:
        parts.append(_pdf_box(box, drawing.height))
    return _pdf_file("\n".join(parts).encode("latin-1", "replace"), drawing.width * scale, drawing.height * scale)


def _pdf_box(box: PlacedBox, height: float) -> str:
    red, green, blue = (int(box.fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    bottom = height - box.y - BOX_PX
    return (
        f"{red:.3f} {green:.3f} {blue:.3f} rg {box.x:.1f} {bottom:.1f} {box.width:.1f} {BOX_PX} re B 0 g "
        f"BT /F1 10 Tf {box.x + 8:.1f} {bottom + 27:.1f} Td ({_pdf_text(box.label)}) Tj ET "
        f"BT /F1 8 Tf {box.x + 8:.1f} {bottom + 11:.1f} Td ({_pdf_text(box.detail)}) Tj ET"
    )


def _pdf_text(text: str) -> str:
    text = text.replace("…", "...").replace("\N{MULTIPLICATION SIGN}", "x")
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _pdf_file(content: bytes, width: float, height: float) -> bytes:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width:.0f} {height:.0f}] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R >> >> >>".encode(),
        f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    file = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(file))
        file += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(file)
    file += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    file += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    file += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(file)


# --- The files of a reference: module graph and op graph as DOT, SVG and PDF ---


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
