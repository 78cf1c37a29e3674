"""Timelines of generated logs, with the truth about them."""

from tests.memory.log_generator.device import Memory
from tests.memory.log_generator.graphs import Graph, random_graph
from tests.memory.log_generator.run import Truth, generate
from tests.memory.log_generator.style import Style
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study


def two_graphs(seed: int) -> list[Graph]:
    return [random_graph(seed), random_graph(seed + 1, module="SyncTensorsGraph.2", num_ops=5)]


def study_of(
    graphs: list[Graph] | int,
    *,
    passes: int = 2,
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
) -> tuple[Study, Truth]:
    """Run graphs, or two drawn from a seed, and read the log back."""
    made = two_graphs(graphs) if isinstance(graphs, int) else graphs
    log, truth = generate(made, passes=passes, style=style, memories=memories)
    return Study(parse_log(log.splitlines(keepends=True))), truth
