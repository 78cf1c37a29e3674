"""Weights, constants and inputs of the graphs, as the module dumps name them."""

from torchstone.memory.documents import registry_document
from torchstone.report.section import Card, Column, ReportFolder, SectionView, Shown, Table
from torchstone.report.view.memory import memory_view
from torchstone.units import many, show_bytes

NAME = "inputs"
_PLURALS = {"parameter": "Weights", "constant": "Constants", "input": "Inputs"}


def build(folder: ReportFolder) -> SectionView:
    """The view of the arguments."""
    view = memory_view(folder)
    document = registry_document(view.study, "")
    rows = document["arguments"]
    notes = () if rows else ("The log contains no module dump of a graph that ran; set TTXLA_LOGGER_LEVEL=DEBUG.",)
    return SectionView(
        name=NAME,
        title="Weights and inputs",
        document={"arguments": rows},
        cards=_cards(rows),
        tables=(_table(rows),),
        notes=notes,
    )


def _cards(rows: list[dict[str, object]]) -> tuple[Card, ...]:
    cards = []
    for kind, title in _PLURALS.items():
        sizes = [row["bytes"] for row in rows if row["kind"] == kind]
        total = sum(size for size in sizes if isinstance(size, int))
        unknown = sum(size is None for size in sizes)
        detail = many(len(sizes), "argument") + (f", {unknown} of unknown size" if unknown else "")
        cards.append(Card(title=title, value=show_bytes(total), detail=detail))
    return tuple(cards)


def _table(rows: list[dict[str, object]]) -> Table:
    def texts(key: str) -> list[str]:
        return ["" if row[key] is None else str(row[key]) for row in rows]

    def shapes() -> list[str]:
        return ["x".join(map(str, shape)) if isinstance(shape := row["shape"], tuple | list) else "" for row in rows]

    sizes = [size if isinstance(size := row["bytes"], int) else None for row in rows]
    graphs = [graph if isinstance(graph := row["graph"], int) else None for row in rows]
    return Table(
        name="inputs.arguments",
        title="Arguments",
        columns=(
            Column(name="graph", title="Graph", values=graphs, shown=Shown.COUNT),
            Column(name="name", title="Name", values=texts("name"), shown=Shown.TEXT),
            Column(name="kind", title="Kind", values=texts("kind"), shown=Shown.TEXT),
            Column(name="size", title="Logical size", values=sizes, shown=Shown.BYTES),
            Column(name="shape", title="Shape", values=shapes(), shown=Shown.TEXT),
            Column(name="dtype", title="Dtype", values=texts("dtype"), shown=Shown.TEXT),
            Column(name="memory", title="Memory", values=texts("memory"), shown=Shown.TEXT),
            Column(name="value", title="SSA value", values=texts("value"), shown=Shown.TEXT),
        ),
        empty="The log contains no arguments.",
    )
