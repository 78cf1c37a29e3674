"""Where the boxes of a drawing stand: rows by longest path, then side by side; O(V log V + E) but for long edges.

Boxes come in order of execution, which is topological, so one pass finds the rows, and one back lowers what needs no
input: the transpose of a weight stands where it is used. An edge that skips rows runs in a
track beside the boxes it passes; the edges of one box share a track.
"""

from collections import defaultdict
from collections.abc import Sequence

from torchstone.record.base import Record

ROW_PX = 84
BOX_PX = 46
_GAP_PX = 28
_TRACK_PX = 16
_NO_TRACK = None


class Placed(Record, frozen=True, kw_only=True):
    """Centres and rows of the boxes, and the track of each edge that has one."""

    x: tuple[int, ...]
    rows: tuple[int, ...]
    tracks: tuple[int | None, ...]  # x of the track; None: drawn straight


def place(widths: Sequence[int], edges: Sequence[tuple[int, int]], *, inputs: int = 0) -> Placed:
    """Place boxes of given widths; edges go from an earlier box to a later one; the first `inputs` boxes are inputs."""
    rows = _rows(len(widths), edges, inputs)
    x = _side_by_side(widths, edges, rows)
    return Placed(x=tuple(map(round, x)), rows=tuple(rows), tracks=tuple(_tracks(widths, edges, rows, x)))


def _rows(count: int, edges: Sequence[tuple[int, int]], inputs: int) -> list[int]:
    before: defaultdict[int, list[int]] = defaultdict(list)
    after: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rows = [0] * count
    fed = [box < inputs for box in range(count)]  # whether anything of an input arrives there
    for box in range(inputs, count):
        rows[box] = max((rows[source] + 1 for source in before[box]), default=int(inputs > 0))
        fed[box] = any(fed[source] for source in before[box])
    for box in reversed(range(count)):  # what waits for nothing, inputs among it, stands just above its first reader
        if after[box] and (box < inputs or not fed[box]):
            rows[box] = min(rows[target] - 1 for target in after[box])
    return rows


def _side_by_side(widths: Sequence[int], edges: Sequence[tuple[int, int]], rows: list[int]) -> list[float]:
    before: defaultdict[int, list[int]] = defaultdict(list)
    after: defaultdict[int, list[int]] = defaultdict(list)
    in_row: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    for box, row in enumerate(rows):
        in_row[row].append(box)
    x = [0.0] * len(widths)
    for neighbours, order in (
        (before, sorted(in_row)),
        (after, sorted(in_row, reverse=True)),
        (before, sorted(in_row)),
    ):
        for row in order:
            _spread(in_row[row], neighbours, widths, x)
    return x


def _spread(boxes: list[int], neighbours: dict[int, list[int]], widths: Sequence[int], x: list[float]) -> None:
    """Put the boxes of one row as near to their neighbours as their widths allow."""
    near = {box: _mean([x[other] for other in neighbours.get(box, ())] or [x[box]]) for box in boxes}
    order = sorted(boxes, key=lambda box: (near[box], box))
    edge = float("-inf")
    for box in order:
        x[box] = max(near[box], edge + widths[box] / 2)
        edge = x[box] + widths[box] / 2 + _GAP_PX
    shift = _mean([near[box] - x[box] for box in order])
    for box in order:
        x[box] += shift


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _tracks(
    widths: Sequence[int], edges: Sequence[tuple[int, int]], rows: list[int], x: list[float]
) -> list[int | None]:
    spans: dict[int, int] = {}  # box -> the lowest row that one of its long edges passes
    for source, target in edges:
        if rows[target] > rows[source] + 1:
            spans[source] = max(spans.get(source, 0), rows[target] - 1)
    left, right = _borders(widths, rows, x)
    boxes_in: defaultdict[int, list[int]] = defaultdict(list)
    for box, row in enumerate(rows):
        boxes_in[row].append(box)
    track_of: dict[int, int] = {}
    for source in sorted(spans, key=lambda box: (spans[box] - rows[box], box)):
        passed = range(rows[source] + 1, spans[source] + 1)
        if _is_free(x[source], [box for row in passed for box in boxes_in[row]], widths, x):
            track = x[source]
        else:
            lowest, highest = min(left[row] for row in passed), max(right[row] for row in passed)
            to_the_right = highest - x[source] <= x[source] - lowest
            track = highest + _TRACK_PX if to_the_right else lowest - _TRACK_PX
        track_of[source] = round(track)
        for row in passed:
            left[row], right[row] = min(left[row], track), max(right[row], track)
    return [track_of[source] if rows[target] > rows[source] + 1 else _NO_TRACK for source, target in edges]


def _is_free(at: float, boxes: Sequence[int], widths: Sequence[int], x: Sequence[float]) -> bool:
    return all(abs(x[box] - at) > widths[box] / 2 + _TRACK_PX for box in boxes)


def _borders(widths: Sequence[int], rows: list[int], x: list[float]) -> tuple[dict[int, float], dict[int, float]]:
    left: defaultdict[int, float] = defaultdict(float)
    right: defaultdict[int, float] = defaultdict(float)
    for box, row in enumerate(rows):
        left[row] = min(left[row], x[box] - widths[box] / 2)
        right[row] = max(right[row], x[box] + widths[box] / 2)
    return left, right
