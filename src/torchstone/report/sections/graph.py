"""The model graph: containers, boxes and edges as tables, each box with its place."""

from torchstone.record.base import Record
from torchstone.report.layout import Placed, place
from torchstone.report.section import Column, ReportFolder, SectionView, Table
from torchstone.report.view.graph import Drawing, Graph, Kind, Node, model_graph
from torchstone.units import many

NAME = "graph"
MAX_DRAWN = 400  # more boxes in one container are listed instead
_CHARACTER_PX = 7
_PADDING_PX = 34
_NARROWEST_PX, _WIDEST_PX = 104, 280


class _Sheet(Record, frozen=True, kw_only=True):
    drawing: Drawing
    placed: Placed | None  # None: too many boxes
    widths: tuple[int, ...]


def build(folder: ReportFolder) -> SectionView:
    """The view of the graph."""
    trace = folder.trace
    graph = model_graph(trace, folder.folds)
    sheets = [_sheet(drawing) for drawing in graph.drawings]
    calls = trace.module_calls
    backward = len(trace.ops) - trace.ops.forward_calls
    return SectionView(
        name=NAME,
        title="Graph",
        document={"containers": len(graph.containers), "drawings": len(graph.drawings)},
        tables=(
            _containers(graph),
            _boxes(sheets),
            _edges(sheets),
            Table(
                name="graph.calls",
                columns=(Column(name="module", values=calls.modules), Column(name="parent", values=calls.parents)),
            ),
            Table(name="graph.ops", columns=(Column(name="signature", values=trace.ops.signature_of),)),
        ),
        notes=(f"the graph shows the forward pass: without {many(backward, 'op call')} of the backward pass",)
        if backward
        else (),
        settings={"most": MAX_DRAWN},
        script="graph.js",
    )


def _sheet(drawing: Drawing) -> _Sheet:
    widths = tuple(map(_width, drawing.nodes))
    if len(drawing.nodes) > MAX_DRAWN:
        return _Sheet(drawing=drawing, placed=None, widths=widths)
    inputs = sum(node.kind is Kind.INPUT for node in drawing.nodes)
    edges = [(edge.source, edge.target) for edge in drawing.edges]
    return _Sheet(drawing=drawing, placed=place(widths, edges, inputs=inputs), widths=widths)


def _width(node: Node) -> int:
    label = short_op(node.label) if node.kind is Kind.OP else node.label
    longest = max(len(label) + (5 if node.kind is Kind.FOLD else 0), int(len(node.detail) * 0.9))
    return min(max(longest * _CHARACTER_PX + _PADDING_PX, _NARROWEST_PX), _WIDEST_PX)


def short_op(op: str) -> str:
    """An op as it stands in a box: aten.mm.default is mm, aten.add.Tensor is add.Tensor."""
    return op.removeprefix("aten.").removesuffix(".default")


def _containers(graph: Graph) -> Table:
    return Table(
        name="graph.containers",
        columns=(
            Column(name="call", values=[one.call for one in graph.containers]),
            Column(name="drawing", values=[one.drawing for one in graph.containers]),
            Column(name="first_op", values=[one.first_op for one in graph.containers]),
        ),
    )


def _boxes(sheets: list[_Sheet]) -> Table:
    rows = [
        (number, sheet, at, node) for number, sheet in enumerate(sheets) for at, node in enumerate(sheet.drawing.nodes)
    ]
    return Table(
        name="graph.boxes",
        columns=(
            Column(name="drawing", values=[number for number, _, _, _ in rows]),
            Column(name="kind", values=[node.kind.value for _, _, _, node in rows]),
            Column(name="label", values=[node.label for _, _, _, node in rows]),
            Column(
                name="short",
                values=[short_op(node.label) if node.kind is Kind.OP else node.label for _, _, _, node in rows],
            ),
            Column(name="detail", values=[node.detail for _, _, _, node in rows]),
            Column(name="target", values=[node.target for _, _, _, node in rows]),
            Column(name="count", values=[node.count for _, _, _, node in rows]),
            Column(name="failed", values=[int(node.failed) for _, _, _, node in rows]),
            Column(name="x", values=[sheet.placed.x[at] if sheet.placed else None for _, sheet, at, _ in rows]),
            Column(name="row", values=[sheet.placed.rows[at] if sheet.placed else None for _, sheet, at, _ in rows]),
            Column(name="width", values=[sheet.widths[at] for _, sheet, at, _ in rows]),
        ),
    )


def _edges(sheets: list[_Sheet]) -> Table:
    rows = [
        (number, sheet, at, edge) for number, sheet in enumerate(sheets) for at, edge in enumerate(sheet.drawing.edges)
    ]
    return Table(
        name="graph.edges",
        columns=(
            Column(name="drawing", values=[number for number, _, _, _ in rows]),
            Column(name="source", values=[edge.source for _, _, _, edge in rows]),
            Column(name="target", values=[edge.target for _, _, _, edge in rows]),
            Column(
                name="track", values=[sheet.placed.tracks[at] if sheet.placed else None for _, sheet, at, _ in rows]
            ),
            Column(name="text", values=[edge.text for _, _, _, edge in rows]),
        ),
    )
