"""Long logs: warm passes repeat to the byte, so they are made once and written many times."""

from collections.abc import Iterator

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import generate

_OP = b"Executing operation: "


def long_log(ops: int) -> Iterator[bytes]:
    """About as many ops as asked for, in passes of two graphs: three passes as they were run, then the last again."""
    graphs = [random_graph(7, num_ops=60), random_graph(1007, module="SyncTensorsGraph.2", num_ops=60)]
    log, truth = generate(graphs, passes=3)
    start = f"{'RuntimeTTNN':>23} | {'DEBUG':>8} | Starting execution of program: main\n".encode()
    warm = start + start.join(log.split(start)[-2:])
    yield log
    for _ in range((ops - len(truth.rows)) // warm.count(_OP)):
        yield warm
