import re
from itertools import pairwise
from xml.etree import ElementTree as Xml

from tests.report.traces import HOSTILE, empty_model, hostile_names, transformer
from torchstone.report.reference.flat_graph import flat_graph
from torchstone.report.reference.graph_files import lay_out, pdf_of, svg_of


def test_no_two_boxes_overlap_and_all_lie_on_the_page() -> None:
    drawing = lay_out(flat_graph(transformer(3), ops=True))

    for box in drawing.boxes:
        assert box.x >= 0
        assert box.x + box.width <= drawing.width
        assert 0 <= box.y < drawing.height
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in drawing.boxes:
        rows.setdefault(box.y, []).append((box.x, box.x + box.width))
    for spans in rows.values():
        ordered = sorted(spans)
        assert all(left[1] <= right[0] for left, right in pairwise(ordered))


def test_the_svg_is_well_formed_and_shows_every_box_and_line() -> None:
    drawing = lay_out(flat_graph(hostile_names(), ops=False))

    root = Xml.fromstring(svg_of(drawing, HOSTILE[0]))  # noqa: S314 - our own file

    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("polyline") == len(drawing.lines)
    assert tags.count("rect") == len(drawing.boxes) + 1
    assert "script" not in tags
    assert "img" not in tags


def test_the_pdf_has_its_table_of_objects_at_the_places_it_says() -> None:
    content = pdf_of(lay_out(flat_graph(transformer(2), ops=False)))

    start = int(content.rsplit(b"startxref\n", 1)[1].split(b"\n")[0])
    assert content[start:].startswith(b"xref")
    offsets = [int(found) for found in re.findall(rb"^(\d{10}) 00000 n", content[start:], re.MULTILINE)]
    assert [content[offset:].split(b" ")[0] for offset in offsets] == [b"1", b"2", b"3", b"4", b"5"]
    assert content.endswith(b"%%EOF\n")


def test_the_stream_of_the_pdf_is_as_long_as_it_says() -> None:
    content = pdf_of(lay_out(flat_graph(hostile_names(), ops=False)))

    length = int(re.search(rb"/Length (\d+)", content)[1])  # type: ignore[index]
    begin = content.index(b"stream\n") + len(b"stream\n")
    assert content[begin + length :].startswith(b"\nendstream")


def test_an_empty_graph_is_drawn_too() -> None:
    drawing = lay_out(flat_graph(empty_model(), ops=False))

    assert svg_of(drawing, "empty").endswith(b"</svg>\n")
    assert pdf_of(drawing).startswith(b"%PDF-1.4")
