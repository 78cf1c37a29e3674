import re
from itertools import combinations
from xml.etree import ElementTree as Xml

import pytest

from tests.report.traces import empty_model, hostile_names, transformer
from torchstone.record.trace import Trace
from torchstone.report.reference.flat_graph import flat_graph
from torchstone.report.reference.graph_pages import Page, graph_pages
from torchstone.report.reference.page_drawing import BOX_PX, Drawing, can_be_read, draw_page, pdf_of, svg_of


def pages_of(trace: Trace, *, ops: bool) -> tuple[Page, ...]:
    return graph_pages(flat_graph(trace, ops=ops), "model", can_be_read).pages


def drawings_of(trace: Trace, *, ops: bool = False) -> list[Drawing]:
    return [draw_page(page) for page in pages_of(trace, ops=ops)]


@pytest.mark.parametrize("ops", [True, False])
def test_no_two_boxes_overlap_and_all_lie_on_the_page(*, ops: bool) -> None:
    for drawing in drawings_of(transformer(3), ops=ops):
        for box in drawing.boxes:
            assert 0 <= box.x <= box.x + box.width <= drawing.width
            assert 0 <= box.y <= box.y + BOX_PX <= drawing.height
        for one, two in combinations(drawing.boxes, 2):
            beside = one.x + one.width <= two.x or two.x + two.width <= one.x
            assert beside or abs(one.y - two.y) >= BOX_PX


@pytest.mark.parametrize("ops", [True, False])
def test_frames_hold_their_boxes_or_none_of_them(*, ops: bool) -> None:
    """A frame around all boxes of a module and no other: none lies across its border."""
    for drawing in drawings_of(transformer(3), ops=ops):
        for frame in drawing.frames:
            for box in drawing.boxes:
                inside = (
                    frame.x <= box.x
                    and box.x + box.width <= frame.x + frame.width
                    and frame.y <= box.y
                    and box.y + BOX_PX <= frame.y + frame.height
                )
                outside = (
                    box.x + box.width <= frame.x
                    or frame.x + frame.width <= box.x
                    or box.y + BOX_PX <= frame.y
                    or frame.y + frame.height <= box.y
                )
                assert inside or outside


def test_every_arrow_ends_at_the_top_of_a_box_and_every_fed_box_has_one() -> None:
    pages = pages_of(transformer(2), ops=False)
    for page, drawing in zip(pages, map(draw_page, pages), strict=True):
        ends = {(round(line.points[-1][0]), round(line.points[-1][1])) for line in drawing.lines if line.arrow}
        tops = {(round(box.x + box.width / 2), round(box.y)): box.label for box in drawing.boxes}
        assert ends <= tops.keys()
        fed = {page.graph.boxes[target].label for _, target in page.graph.edges}
        assert {tops[end] for end in ends} == fed


def test_the_svg_is_well_formed_and_shows_every_box_frame_and_line() -> None:
    for drawing in drawings_of(hostile_names()):
        root = Xml.fromstring(svg_of(drawing))  # noqa: S314 - our own file

        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert tags.count("polyline") == len(drawing.lines)
        assert tags.count("rect") == len(drawing.boxes) + len(drawing.frames) + 1
        assert "script" not in tags
        assert "img" not in tags


def test_the_pdf_has_its_pages_and_its_table_of_objects_at_the_places_it_says() -> None:
    drawings = drawings_of(transformer(2)) + drawings_of(hostile_names())

    content = pdf_of(drawings)

    start = int(content.rsplit(b"startxref\n", 1)[1].split(b"\n")[0])
    assert content[start:].startswith(b"xref")
    offsets = [int(found) for found in re.findall(rb"^(\d{10}) 00000 n", content[start:], re.MULTILINE)]
    assert [int(content[offset:].split(b" ")[0]) for offset in offsets] == list(range(1, 4 + 2 * len(drawings)))
    assert content.count(b"/Type /Page /Parent") == len(drawings)
    assert content.endswith(b"%%EOF\n")


def test_the_streams_of_the_pdf_are_as_long_as_they_say() -> None:
    content = pdf_of(drawings_of(hostile_names()))

    for found in re.finditer(rb"/Length (\d+) >>\nstream\n", content):
        assert content[found.end() + int(found[1]) :].startswith(b"\nendstream")


def test_pages_are_a4_and_the_drawing_lies_on_them() -> None:
    content = pdf_of(drawings_of(transformer(4), ops=True))

    sheets = {tuple(map(int, found)) for found in re.findall(rb"/MediaBox \[0 0 (\d+) (\d+)\]", content)}
    assert sheets <= {(595, 842), (842, 595)}
    scales = [float(found) for found in re.findall(rb"stream\n([\d.]+) 0 0", content)]
    assert min(scales) >= 0.4


def test_an_empty_graph_is_drawn_too() -> None:
    (drawing,) = drawings_of(empty_model())

    assert svg_of(drawing).endswith(b"</svg>\n")
    assert pdf_of([drawing]).startswith(b"%PDF-1.4")
