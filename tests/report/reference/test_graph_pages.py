from itertools import pairwise

import pytest

from tests.report.traces import empty_model, hostile_names, one_op, transformer
from torchstone.models.inputs import InputOptions
from torchstone.record.trace import Trace
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph, Frame, flat_graph
from torchstone.report.reference.graph_pages import CLOSED, MOST_BOXES, MOST_MODULES, Page, Pages, graph_pages
from torchstone.report.reference.page_drawing import can_be_read
from torchstone.workflows.model_source import ModelRequest, load_trace

MOST_STUBS = 8  # four for what comes from other pages, four for what goes there


def pages_of(graph: FlatGraph) -> Pages:
    return graph_pages(graph, "model", can_be_read)


def chain(length: int, *, group: int = NO_GROUP, frames: tuple[Frame, ...] = ()) -> FlatGraph:
    boxes = tuple(
        Box(name=f"b{at}", label=f"m{at}", detail="Linear", kind="module", group=group) for at in range(length)
    )
    return FlatGraph(boxes=boxes, frames=frames, edges=tuple(pairwise(range(length))))


def stages(lengths: tuple[int, ...]) -> FlatGraph:
    """Modules in a row, each with a chain of boxes inside."""
    boxes = [
        Box(name=f"b{stage}x{at}", label=f"s{stage}.m{at}", detail="Linear", kind="module", group=stage)
        for stage, length in enumerate(lengths)
        for at in range(length)
    ]
    frames = tuple(Frame(label=f"s{stage}", detail="Stage", path=f"s{stage}") for stage in range(len(lengths)))
    return FlatGraph(boxes=tuple(boxes), frames=frames, edges=tuple(pairwise(range(len(boxes)))))


def drawn(page: Page) -> list[Box]:
    """The boxes of a page without those that lead to other pages."""
    return [box for box in page.graph.boxes if not box.name.startswith(("from", "to"))]


@pytest.mark.parametrize("length", [1, 2, MOST_BOXES, MOST_BOXES + 1, 100, 1000])
def test_a_long_chain_is_divided_into_parts_that_lead_to_each_other(length: int) -> None:
    found = pages_of(chain(length))

    assert [box.name for page in found.pages for box in drawn(page)] == [f"b{at}" for at in range(length)]
    assert all(len(drawn(page)) <= MOST_BOXES for page in found.pages)
    for before, after in pairwise(found.pages):
        assert before.graph.boxes[-1].label == f"to {drawn(after)[0].label}"
        assert after.graph.boxes[0].label == f"from {drawn(before)[-1].label}"


def test_a_small_graph_is_one_page_with_its_frames_open() -> None:
    found = pages_of(stages((3, 4)))

    (page,) = found.pages
    assert [frame.label for frame in page.graph.frames] == ["s0", "s1"]
    assert [box.label for box in page.graph.boxes] == ["m0", "m1", "m2", "m0", "m1", "m2", "m3"]
    assert page.title == "model: whole model"


def test_modules_that_do_not_fit_are_closed_and_name_their_page() -> None:
    found = pages_of(stages((15, 16, 17)))

    closed = [box for box in found.pages[0].graph.boxes if box.kind == CLOSED]
    titles = [page.title for page in found.pages]
    for box in closed:
        number = int(box.detail.removeprefix("Stage: page "))
        assert titles[number - 1] == f"model: {box.label}, Stage (page {number} of {len(titles)})"
    assert len(closed) == len(found.pages) - 1 >= 1


def test_modules_with_the_same_structure_share_a_page_and_are_named_there() -> None:
    found = pages_of(stages((18, 18, 18, 17)))

    assert [page.same for page in found.pages] == [(), ("s1", "s2"), ()]
    assert found.alike == 36
    assert sum(len(page.shown) for page in found.pages) == 18 + 17


def test_another_number_of_repeats_is_another_structure() -> None:
    plain = stages((18, 18))
    inner = Frame(label="s1.layers.0 … 4, x 5", detail="Layer", path="s1.layers.0", parent=1)
    other = Frame(label="s0.layers.0 … 2, x 3", detail="Layer", path="s0.layers.0", parent=0)
    boxes = tuple(
        Box(name=box.name, label=box.label, detail=box.detail, kind=box.kind, group=3 if box.group else 2)
        for box in plain.boxes
    )
    repeated = FlatGraph(boxes=boxes, frames=(*plain.frames, other, inner), edges=plain.edges)

    found = pages_of(repeated)

    assert all(page.same == () for page in found.pages)


def test_too_many_modules_are_counted_and_not_drawn() -> None:
    lengths = tuple(range(30, 30 + MOST_MODULES + 30))  # no two alike, each needs several parts

    graph = stages(lengths)
    found = pages_of(graph)

    assert len(found.left_out) == len(lengths) - MOST_MODULES
    assert sum(len(page.shown) for page in found.pages) + found.alike + found.hidden == len(graph.boxes)
    assert any("see report.html" in box.detail for page in found.pages for box in page.graph.boxes)


@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize(
    "trace",
    [transformer(1), transformer(7), one_op(), hostile_names(), empty_model()],
    ids=lambda one: one.provenance.model[:9],
)
def test_every_box_is_accounted_for_once(trace: Trace, *, ops: bool) -> None:
    graph = flat_graph(trace, ops=ops)

    found = pages_of(graph)

    shown = [number for page in found.pages for number in page.shown]
    assert len(shown) == len(set(shown))
    assert len(shown) + found.alike + found.hidden == len(graph.boxes)
    for page in found.pages:
        assert len(page.graph.boxes) <= MOST_BOXES + MOST_STUBS
        assert all(source < target for source, target in page.graph.edges)


@pytest.mark.torch
def test_t5_fits_on_pages_with_its_layers_folded() -> None:
    trace = load_trace(ModelRequest(model="t5-small", options=InputOptions(seq_len=16)))
    graph = flat_graph(trace, ops=False)
    found = pages_of(graph)

    assert len(graph.boxes) > 100
    assert {"encoder", "decoder"} <= {frame.label for frame in found.pages[0].graph.frames}
    labels = [frame.label for frame in found.pages[0].graph.frames] + [box.label for box in found.pages[0].graph.boxes]
    assert labels.count("block.1 … 5, x 5") == 2
    assert all(len(page.graph.boxes) <= MOST_BOXES + MOST_STUBS for page in found.pages)
    assert sum(len(page.shown) for page in found.pages) + found.alike == len(graph.boxes)
