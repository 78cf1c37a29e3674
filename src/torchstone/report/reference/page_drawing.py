"""Pages of a graph as pictures: frames around the modules that are open, arrows; SVG, and one PDF with all pages.

Each frame is laid out by itself and is then one item of the frame around it. An edge that crosses the border of a frame
runs through a port at its top or bottom, so that inside a frame all edges go from one item to another.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from torchstone.record.base import Record
from torchstone.report.layout import place
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph
from torchstone.report.reference.graph_pages import CLOSED, Page

BOX_PX = 36
_ROW_GAP_PX = 24
_PORT_GAP_PX = 10  # between a port and the row beside it
_CHARACTER_PX = 6.2
_PADDING_PX = 16
_MARGIN_PX = 24
_TITLE_PX = 26
_FRAME_PX = 12  # between a frame and what is in it
_FRAME_LABEL_PX = 20
_LONGEST = 60
_FILLS = {
    "module": "#dbe9fb",
    CLOSED: "#c3d7f2",
    "op": "#ffffff",
    "input": "#e2f3e2",
    "output": "#fdebd0",
}
Point = tuple[float, float]
_Key = tuple[str, int]  # box, frame, in or out, and its number
_IN, _OUT = ("in", 0), ("out", 0)


class PlacedBox(Record, frozen=True, kw_only=True):
    """A box with its place: its left upper corner, y downwards."""

    x: float
    y: float
    width: float
    label: str
    detail: str
    kind: str


class PlacedFrame(Record, frozen=True, kw_only=True):
    """A frame with its place."""

    x: float
    y: float
    width: float
    height: float
    label: str


class Line(Record, frozen=True, kw_only=True):
    """A line, and whether it ends at a box."""

    points: tuple[Point, ...]
    arrow: bool


class Drawing(Record, frozen=True, kw_only=True):
    """Boxes, frames and lines with their places, frames from the outside in."""

    title: str
    footer: str
    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    frames: tuple[PlacedFrame, ...]
    lines: tuple[Line, ...]


def shortened(text: str) -> str:
    """A text that fits into a box."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_LEAST_SCALE = 0.62  # of a page on A4: labels are then at least 6 points high


def can_be_read(graph: FlatGraph) -> bool:
    """Whether a graph on a sheet of A4 has letters that a person can read."""
    drawing = draw_page(Page(number=1, title="", graph=graph, shown=frozenset()))
    return max(_scale(drawing, sheet) for sheet in (_A4_PT, _A4_PT[::-1])) >= _LEAST_SCALE


def draw_page(page: Page) -> Drawing:
    """Lay a page out."""
    whole = _Layout(page.graph).container(NO_GROUP)
    footer = f"same structure, shapes may differ: {', '.join(page.same)}" if page.same else ""
    width = max(whole.width, len(page.title) * _CHARACTER_PX * 1.3) + 2 * _MARGIN_PX
    left = (width - whole.width) / 2
    moved = whole.moved(left, _MARGIN_PX + _TITLE_PX)
    return Drawing(
        title=page.title,
        footer=_cut(footer, width),
        width=width,
        height=whole.height + 2 * _MARGIN_PX + _TITLE_PX + (_TITLE_PX if footer else 0),
        boxes=moved.boxes,
        frames=moved.frames,
        lines=moved.lines,
    )


def _cut(text: str, width: float) -> str:
    longest = int((width - 2 * _MARGIN_PX) / _CHARACTER_PX)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# --- Layout ---


class _Part(Record, frozen=True, kw_only=True):
    """A part of a drawing with its origin at its left upper corner, and where edges enter and leave it."""

    width: float
    height: float
    enters: float
    leaves: float
    boxes: tuple[PlacedBox, ...] = ()
    frames: tuple[PlacedFrame, ...] = ()
    lines: tuple[Line, ...] = ()
    is_box: bool = False

    def moved(self, x: float, y: float) -> "_Part":
        """The same part at another place."""
        return _Part(
            width=self.width,
            height=self.height,
            enters=self.enters + x,
            leaves=self.leaves + x,
            boxes=tuple(_at(box, x, y) for box in self.boxes),
            frames=tuple(_frame_at(frame, x, y) for frame in self.frames),
            lines=tuple(
                Line(points=tuple((px + x, py + y) for px, py in line.points), arrow=line.arrow) for line in self.lines
            ),
            is_box=self.is_box,
        )


def _at(box: PlacedBox, x: float, y: float) -> PlacedBox:
    return PlacedBox(x=box.x + x, y=box.y + y, width=box.width, label=box.label, detail=box.detail, kind=box.kind)


def _frame_at(frame: PlacedFrame, x: float, y: float) -> PlacedFrame:
    return PlacedFrame(x=frame.x + x, y=frame.y + y, width=frame.width, height=frame.height, label=frame.label)


class _Layout:
    def __init__(self, graph: FlatGraph) -> None:
        self.graph = graph
        self.items: defaultdict[int, list[_Key]] = defaultdict(list)
        self.around = [self._groups(box.group) for box in graph.boxes]  # frames around a box, the innermost first
        seen: set[int] = set()
        for number, groups in enumerate(self.around):
            item: _Key = ("box", number)
            for group in groups:
                self.items[group].append(item)
                if group in seen or group == NO_GROUP:
                    break
                seen.add(group)
                item = ("frame", group)
        self.edges = self._edges_by_frame()

    def _groups(self, group: int) -> list[int]:
        found = [group]
        while group != NO_GROUP:
            group = self.graph.frames[group].parent
            found.append(group)
        return found

    def _edges_by_frame(self) -> dict[int, list[tuple[_Key, _Key]]]:
        """The edges inside each frame: from item to item, and through its ports."""
        found: defaultdict[int, dict[tuple[_Key, _Key], None]] = defaultdict(dict)
        for source, target in self.graph.edges:
            up, down = self.around[source], self.around[target]
            meeting = next(group for group in up if group in down)
            leaving: _Key = ("box", source)
            for group in up[: up.index(meeting)]:
                found[group][leaving, _OUT] = None
                leaving = ("frame", group)
            entering: _Key = ("box", target)
            for group in down[: down.index(meeting)]:
                found[group][_IN, entering] = None
                entering = ("frame", group)
            found[meeting][leaving, entering] = None
        return {group: list(edges) for group, edges in found.items()}

    def container(self, group: int) -> _Part:
        """A frame with all that is in it, without its own border."""
        edges = self.edges.get(group, [])
        keys = list(self.items[group])
        if any(source == _IN for source, _ in edges):
            keys.insert(0, _IN)
        if any(target == _OUT for _, target in edges):
            keys.append(_OUT)
        parts = [self._part(key) for key in keys]
        number = {key: at for at, key in enumerate(keys)}
        pairs = [(number[source], number[target]) for source, target in edges]
        first = 1 if keys and keys[0] == _IN else 0
        inputs = first or sum(key[0] == "box" and self.graph.boxes[key[1]].kind == "input" for key in keys)
        return _arranged(parts, pairs, inputs, keys)

    def _part(self, key: _Key) -> _Part:
        kind, number = key
        if kind == "box":
            return _box_part(self.graph.boxes[number])
        if kind == "frame":
            return self._framed(number)
        return _Part(width=2, height=0, enters=1, leaves=1)

    def _framed(self, number: int) -> _Part:
        frame = self.graph.frames[number]
        label = shortened(f"{frame.label}: {frame.detail}")
        inner = self.container(number)
        width = max(inner.width, len(label) * _CHARACTER_PX) + 2 * _FRAME_PX
        top = _FRAME_PX + _FRAME_LABEL_PX
        height = inner.height + top + _FRAME_PX
        moved = inner.moved((width - inner.width) / 2, top)
        border = PlacedFrame(x=0, y=0, width=width, height=height, label=label)
        through = [
            *([Line(points=((moved.enters, 0), (moved.enters, top)), arrow=False)] if self._has(number, _IN) else ()),
            *(
                [Line(points=((moved.leaves, height - _FRAME_PX), (moved.leaves, height)), arrow=False)]
                if self._has(number, _OUT)
                else ()
            ),
        ]
        return _Part(
            width=width,
            height=height,
            enters=moved.enters,
            leaves=moved.leaves,
            boxes=moved.boxes,
            frames=(border, *moved.frames),
            lines=(*through, *moved.lines),
        )

    def _has(self, group: int, port: _Key) -> bool:
        return any(port in edge for edge in self.edges.get(group, ()))


def _box_part(box: Box) -> _Part:
    label, detail = shortened(box.label), shortened(box.detail)
    width = round(max(len(label), len(detail) * 0.85, 6) * _CHARACTER_PX + _PADDING_PX)
    placed = PlacedBox(x=0, y=0, width=width, label=label, detail=detail, kind=box.kind)
    return _Part(width=width, height=BOX_PX, enters=width / 2, leaves=width / 2, boxes=(placed,), is_box=True)


def _arranged(parts: Sequence[_Part], edges: Sequence[tuple[int, int]], inputs: int, keys: Sequence[_Key]) -> _Part:
    """Put parts into rows below each other and draw the edges between them."""
    placed = place([round(part.width) for part in parts], edges, inputs=inputs)
    lefts = [x - part.width / 2 for x, part in zip(placed.x, parts, strict=True)]
    tracks = [track for track in placed.tracks if track is not None]
    left = min([*lefts, *tracks], default=0)
    right = max([*(x + part.width for x, part in zip(lefts, parts, strict=True)), *tracks], default=0)
    tops, bottoms = _row_borders(parts, placed.rows)
    moved = [part.moved(x - left, tops[row]) for part, x, row in zip(parts, lefts, placed.rows, strict=True)]
    height = max(bottoms.values(), default=0)
    lines: list[Line] = []
    for (source, target), track in zip(edges, placed.tracks, strict=True):
        begin, end = moved[source], moved[target]
        y0 = 0 if keys[source] == _IN else tops[placed.rows[source]] + parts[source].height
        y1 = height if keys[target] == _OUT else tops[placed.rows[target]]
        low = bottoms[placed.rows[source]]
        bend = [] if track is None else [(track - left, low + _PORT_GAP_PX / 2), (track - left, y1 - _PORT_GAP_PX)]
        points = ((begin.leaves, y0), (begin.leaves, max(low, y0)), *bend, (end.enters, y1))
        lines.append(Line(points=points, arrow=parts[target].is_box))
    port_in = next((part.enters for part, key in zip(moved, keys, strict=True) if key == _IN), (right - left) / 2)
    port_out = next((part.enters for part, key in zip(moved, keys, strict=True) if key == _OUT), (right - left) / 2)
    return _Part(
        width=right - left,
        height=height,
        enters=port_in,
        leaves=port_out,
        boxes=tuple(box for part in moved for box in part.boxes),
        frames=tuple(frame for part in moved for frame in part.frames),
        lines=(*lines, *(line for part in moved for line in part.lines)),
    )


def _row_borders(parts: Sequence[_Part], rows: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    heights: dict[int, float] = {}
    for part, row in zip(parts, rows, strict=True):
        heights[row] = max(heights.get(row, 0), part.height)
    tops: dict[int, float] = {}
    bottoms: dict[int, float] = {}
    y = 0.0
    for row in sorted(heights):
        tops[row], bottoms[row] = y, y + heights[row]
        y = bottoms[row] + (_ROW_GAP_PX if heights[row] else _PORT_GAP_PX)
    return tops, bottoms


# --- SVG ---


def svg_of(drawing: Drawing) -> bytes:
    """A page as SVG."""
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    text = 'font-family="Helvetica, Arial, sans-serif"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}">',
        f"<title>{escape(drawing.title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_MARGIN_PX}" y="{_MARGIN_PX + 6}" font-size="13" font-weight="bold" {text}>'
        f"{escape(drawing.title)}</text>",
    ]
    parts += [_svg_frame(frame, depth) for depth, frame in enumerate(drawing.frames)]
    for line in drawing.lines:
        points = " ".join(f"{x:.0f},{y:.0f}" for x, y in line.points)
        tip = ' marker-end="url(#tip)"' if line.arrow else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="#555"{tip}/>')
    parts += [_svg_frame_label(frame) for frame in drawing.frames]
    parts += [_svg_box(box) for box in drawing.boxes]
    if drawing.footer:
        y = drawing.height - _MARGIN_PX / 2
        parts.append(
            f'<text x="{_MARGIN_PX}" y="{y:.0f}" font-size="10" fill="#444" {text}>{escape(drawing.footer)}</text>'
        )
    return "\n".join([*parts, "</svg>"]).encode() + b"\n"


def _svg_frame(frame: PlacedFrame, number: int) -> str:
    fill = "#f6f8fb" if number % 2 == 0 else "#eef2f8"
    return (
        f'<rect x="{frame.x:.0f}" y="{frame.y:.0f}" width="{frame.width:.0f}" height="{frame.height:.0f}" rx="6" '
        f'fill="{fill}" stroke="#8899aa"/>'
    )


def _svg_frame_label(frame: PlacedFrame) -> str:
    """Over the lines, which it interrupts."""
    return (
        f'<text x="{frame.x + 8:.0f}" y="{frame.y + 15:.0f}" font-size="10" fill="#445566" stroke="#f6f8fb" '
        f'stroke-width="4" paint-order="stroke" font-family="Helvetica, Arial, sans-serif">{escape(frame.label)}</text>'
    )


def _svg_box(box: PlacedBox) -> str:
    middle = box.x + box.width / 2
    text = 'text-anchor="middle" font-family="Helvetica, Arial, sans-serif"'
    at = 16 if box.detail else 23
    detail = (
        f'<text x="{middle:.0f}" y="{box.y + 30:.0f}" font-size="9" fill="#444" {text}>{escape(box.detail)}</text>'
        if box.detail
        else ""
    )
    return (
        f'<rect x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{BOX_PX}" rx="4" '
        f'fill="{_FILLS[box.kind]}" stroke="#333"/>'
        f'<text x="{middle:.0f}" y="{box.y + at:.0f}" font-size="11" {text}>{escape(box.label)}</text>{detail}'
    )


# --- PDF: one A4 page for each drawing, upright or across, in a font that every reader has ---


_A4_PT = (595, 842)
_EDGE_PT = 20


def pdf_of(drawings: Sequence[Drawing]) -> bytes:
    """All pages in one file."""
    contents = [_pdf_page(drawing) for drawing in drawings]
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for at, (width, height, content) in enumerate(contents):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents {5 + 2 * at} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream")
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


def _pdf_page(drawing: Drawing) -> tuple[int, int, bytes]:
    """Width and height of the sheet in points, and what is on it, as large as it gets."""
    width, height = max((_A4_PT, _A4_PT[::-1]), key=lambda sheet: _scale(drawing, sheet))
    scale = _scale(drawing, (width, height))
    left, bottom = (width - drawing.width * scale) / 2, height - _EDGE_PT - drawing.height * scale
    parts = [f"{scale:.4f} 0 0 {scale:.4f} {left:.2f} {bottom:.2f} cm 0.8 w"]
    top = drawing.height
    parts.append(f"0 g {_pdf_text(13, _MARGIN_PX, top - _MARGIN_PX - 6, drawing.title)}")
    for number, frame in enumerate(drawing.frames):
        shade = "0.965 0.973 0.984" if number % 2 == 0 else "0.933 0.949 0.973"
        y = top - frame.y - frame.height
        parts.append(f"{shade} rg 0.53 0.6 0.67 RG {frame.x:.1f} {y:.1f} {frame.width:.1f} {frame.height:.1f} re B")
        parts.append(f"0.27 0.33 0.4 rg {_pdf_text(9, frame.x + 8, top - frame.y - 15, frame.label)}")
    parts.append("0.33 G 0.33 g")
    parts += [_pdf_line(line, top) for line in drawing.lines]
    parts += [_pdf_box(box, top) for box in drawing.boxes]
    if drawing.footer:
        parts.append(f"0 g {_pdf_text(9, _MARGIN_PX, _MARGIN_PX / 2, drawing.footer)}")
    return width, height, "\n".join(parts).encode("cp1252", "replace")


def _scale(drawing: Drawing, sheet: tuple[int, int]) -> float:
    width, height = (side - 2 * _EDGE_PT for side in sheet)
    return min(1.0, width / max(drawing.width, 1), height / max(drawing.height, 1))


def _pdf_line(line: Line, top: float) -> str:
    (x, y), *rest = line.points
    way = " ".join(f"{px:.1f} {top - py:.1f} l" for px, py in rest)
    drawn = f"{x:.1f} {top - y:.1f} m {way} S"
    if not line.arrow:
        return drawn
    x, y = line.points[-1]  # the tip points downwards, as every edge ends at the top of a box
    return f"{drawn} {x:.1f} {top - y:.1f} m {x - 3:.1f} {top - y + 6:.1f} l {x + 3:.1f} {top - y + 6:.1f} l f"


def _pdf_box(box: PlacedBox, top: float) -> str:
    fill = _FILLS[box.kind]
    red, green, blue = (int(fill[at : at + 2], 16) / 255 for at in (1, 3, 5))
    bottom = top - box.y - BOX_PX
    detail = _pdf_text(8, box.x + 8, bottom + 9, box.detail) if box.detail else ""
    return (
        f"{red:.3f} {green:.3f} {blue:.3f} rg 0.2 G {box.x:.1f} {bottom:.1f} {box.width:.1f} {BOX_PX} re B 0 g "
        f"{_pdf_text(10, box.x + 8, bottom + (22 if box.detail else 15), box.label)} {detail}"
    )


def _pdf_text(size: int, x: float, y: float, text: str) -> str:
    text = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return f"BT /F1 {size} Tf {x:.1f} {y:.1f} Td ({text}) Tj ET"
