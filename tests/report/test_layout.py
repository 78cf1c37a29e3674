from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.report.layout import place


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    widths = draw(st.lists(st.integers(100, 280), min_size=1, max_size=25))
    pairs = st.tuples(st.integers(0, len(widths) - 1), st.integers(0, len(widths) - 1))
    return widths, sorted({(min(pair), max(pair)) for pair in draw(st.lists(pairs)) if pair[0] != pair[1]})


@settings(deadline=None)
@given(drawings())
def test_data_flows_downwards_and_boxes_never_overlap(drawing: tuple[list[int], list[tuple[int, int]]]) -> None:
    widths, edges = drawing
    placed = place(widths, edges)

    assert all(placed.rows[source] < placed.rows[target] for source, target in edges)
    for one in range(len(widths)):
        for other in range(one):
            if placed.rows[one] == placed.rows[other]:
                assert abs(placed.x[one] - placed.x[other]) >= (widths[one] + widths[other]) / 2


@settings(deadline=None)
@given(drawings())
def test_a_long_edge_passes_beside_the_boxes_between(drawing: tuple[list[int], list[tuple[int, int]]]) -> None:
    widths, edges = drawing
    placed = place(widths, edges)
    for (source, target), track in zip(edges, placed.tracks, strict=True):
        assert (track is not None) == (placed.rows[target] > placed.rows[source] + 1)
        passed = [box for box, row in enumerate(placed.rows) if placed.rows[source] < row < placed.rows[target]]
        if track is not None:
            assert all(abs(placed.x[box] - track) > widths[box] / 2 for box in passed)


def test_a_chain_stands_in_one_column() -> None:
    placed = place([100, 200, 120], [(0, 1), (1, 2)])

    assert placed.x == (0, 0, 0)
    assert placed.rows == (0, 1, 2)
    assert placed.tracks == (None, None)


def test_an_input_stands_just_above_its_first_reader() -> None:
    placed = place([100] * 5, [(0, 2), (2, 3), (3, 4), (1, 4)], inputs=2)

    assert placed.rows[1] == placed.rows[4] - 1


def test_what_needs_no_input_stands_where_it_is_used() -> None:
    chain = [(0, 2), (2, 3), (3, 4)]  # an input and three steps; 1 feeds the last of them, through 5 below
    placed = place([100] * 7, [*chain, (1, 5), (5, 6), (4, 6)], inputs=1)

    assert placed.rows[5] == placed.rows[6] - 1
    assert placed.rows[1] == placed.rows[5] - 1
