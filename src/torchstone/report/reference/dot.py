"""A flat graph -> DOT text, frames as clusters."""

from collections import defaultdict

from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph

_STYLES = {
    "module": 'style="rounded,filled", fillcolor="#dbe9fb"',
    "op": 'style="filled", fillcolor="#ffffff"',
    "input": 'style="filled", fillcolor="#e2f3e2"',
    "output": 'style="filled", fillcolor="#fdebd0"',
}
_LONGEST = 60


def dot_text(graph: FlatGraph, title: str) -> str:
    """The graph in the language of Graphviz."""
    boxes: defaultdict[int, list[Box]] = defaultdict(list)
    frames: defaultdict[int, list[int]] = defaultdict(list)
    for box in graph.boxes:
        boxes[box.group].append(box)
    for number, frame in enumerate(graph.frames):
        frames[frame.parent].append(number)
    lines = [
        f"digraph {quoted(shortened(title))} {{",
        '  graph [rankdir=TB, fontname="Helvetica", fontsize=11, nodesep=0.25, ranksep=0.35];',
        '  node [shape=box, fontname="Helvetica", fontsize=10, height=0.3, margin="0.08,0.04"];',
        '  edge [arrowsize=0.6, color="#555555"];',
    ]
    lines += _inside(NO_GROUP, graph, boxes, frames, "  ")
    lines += [f"  {graph.boxes[source].name} -> {graph.boxes[target].name};" for source, target in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _inside(
    group: int,
    graph: FlatGraph,
    boxes: defaultdict[int, list[Box]],
    frames: defaultdict[int, list[int]],
    indent: str,
) -> list[str]:
    lines = [f"{indent}{box.name} [label={_label(box)}, {_STYLES[box.kind]}];" for box in boxes[group]]
    for number in frames[group]:
        frame = graph.frames[number]
        lines.append(f"{indent}subgraph cluster_{number} {{")
        label = quoted(f"{shortened(frame.label)}: {shortened(frame.detail)}")
        lines.append(f'{indent}  label={label}; labeljust=l; style="rounded"; color="#8899aa"; fontcolor="#445566";')
        lines += _inside(number, graph, boxes, frames, indent + "  ")
        lines.append(f"{indent}}}")
    return lines


def _label(box: Box) -> str:
    detail = f"\\n{_escaped(shortened(box.detail))}" if box.detail else ""
    return f'"{_escaped(shortened(box.label))}{detail}"'


def quoted(text: str) -> str:
    """A text as a DOT string."""
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def shortened(text: str) -> str:
    """A text that fits into a box."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
