"""Long logs: warm passes repeat to the byte, so they are made once and written many times."""

from collections.abc import Iterator
from random import Random

from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.run import Host, generate
from tests.memory.log_generator.serving import Model, step_graph
from tests.memory.log_generator.style import Style

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


def differing_log(ops: int, *, num_graphs: int = 44) -> Iterator[bytes]:
    """About as many ops as asked for, in passes that do not repeat byte for byte.

    Many graphs run in a random order, while memory that no line names comes and goes around them. The passes of that
    run are written again, in another order, until there are enough.
    """
    random = Random(11)  # noqa: S311 - no secret
    model = Model(width=512, layers=9, context=128, cache_dtype="bf16", embedding_on_device=True, seed=0)
    graphs = [step_graph(model, 8 + 8 * n, module=f"SyncTensorsGraph.{n}") for n in range(num_graphs)]
    order = [*range(num_graphs), *(random.randrange(num_graphs) for _ in range(4 * num_graphs))]
    style = Style(stages=("shlo_frontend", "ttnn"))
    log, truth = generate(graphs, order=order, host=Host(churn_bytes=98_304), style=style)
    yield log
    start = f"{'RuntimeTTNN':>23} | {'DEBUG':>8} | Starting execution of program: main\n".encode()
    passes = [start + text for text in log.split(start)[1 + num_graphs :]]
    done = len(truth.rows)
    while done < ops:
        text = random.choice(passes)
        done += text.count(_OP)
        yield text
