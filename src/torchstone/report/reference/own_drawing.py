"""A flat graph -> places for its boxes, drawn as SVG or PDF without Graphviz; frames are told in the labels."""

from html import escape

from torchstone.record.base import Record
from torchstone.report.layout import BOX_PX, ROW_PX, place
from torchstone.report.reference.dot import shortened
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph

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
    texts = [(_label(box, graph), shortened(box.detail)) for box in graph.boxes]
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


def _label(box: Box, graph: FlatGraph) -> str:
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
