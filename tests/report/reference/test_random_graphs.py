"""Pages and drawings of graphs that nobody planned."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph, Frame
from torchstone.report.reference.graph_pages import graph_pages
from torchstone.report.reference.page_drawing import BOX_PX, can_be_read, draw_page, pdf_of, svg_of

TREES = st.recursive(st.just(0), lambda inner: st.lists(inner, min_size=1, max_size=9), max_leaves=60)


@st.composite
def graphs(draw: st.DrawFn) -> FlatGraph:
    """Boxes in nested frames, each frame a stretch of the order of execution, with any edges forward."""
    boxes: list[Box] = []
    frames: list[Frame] = []

    def add(tree: object, group: int, path: str) -> None:
        if not isinstance(tree, list):
            boxes.append(Box(name=f"b{len(boxes)}", label=path, detail="Linear", kind="module", group=group))
            return
        number = len(frames)
        frames.append(Frame(label=path, detail="Block", path=path, parent=group))
        for at, inner in enumerate(tree):
            add(inner, number, f"{path}.{at}")

    for at, tree in enumerate(draw(st.lists(TREES, min_size=1, max_size=6))):
        add(tree, NO_GROUP, f"m{at}")
    places = st.integers(0, len(boxes) - 1)
    pairs = draw(st.sets(st.tuples(places, places), max_size=80))
    edges = sorted((one, two) for one, two in pairs if one < two)
    return FlatGraph(boxes=tuple(boxes), frames=tuple(frames), edges=tuple(edges))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_every_box_is_on_one_page_or_in_a_module_that_is_drawn_alike(graph: FlatGraph) -> None:
    found = graph_pages(graph, "any", can_be_read)

    shown = [number for page in found.pages for number in page.shown]
    assert len(shown) == len(set(shown))
    assert len(shown) + found.alike + found.hidden == len(graph.boxes)
    numbers = {page.number for page in found.pages}
    for page in found.pages:
        for box in page.graph.boxes:
            if ": page " in box.detail:
                assert int(box.detail.rpartition(" ")[2]) in numbers


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_boxes_do_not_overlap_and_no_edge_is_lost(graph: FlatGraph) -> None:
    pages = graph_pages(graph, "any", can_be_read).pages
    drawings = [draw_page(page) for page in pages]

    for page, drawing in zip(pages, drawings, strict=True):
        for one, two in combinations(drawing.boxes, 2):
            assert one.x + one.width <= two.x or two.x + two.width <= one.x or abs(one.y - two.y) >= BOX_PX
        ends = {(round(line.points[-1][0]), round(line.points[-1][1])) for line in drawing.lines if line.arrow}
        assert len(ends) == len({target for _, target in page.graph.edges})
        for line in drawing.lines:
            assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in line.points)
        assert svg_of(drawing)
    assert pdf_of(drawings).count(b"/Type /Page /Parent") == len(pages)
