"""Logs of a simulated runtime in which everything is irregular at once, drawn from a seed."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.memory.log_generator.device import MIB, wormhole
from tests.memory.log_generator.graphs import Graph
from tests.memory.log_generator.irregular import Traits, irregular_graphs
from tests.memory.log_generator.run import Host, Runtime, Truth, execute
from tests.memory.log_generator.serving import STAGES, random_model, serving_graphs
from tests.memory.log_generator.style import Style, written

Log = tuple[bytes, Truth]


def random_host(random: Random, passes: int) -> Host:
    """A host with several habits at once, some of which change."""
    outputs = random.choice(("drop", "keep", "replace", "slots", "erratic"))
    return Host(
        keeps_outputs=outputs == "keep",
        replaces_outputs=outputs == "replace",
        slots=outputs in {"slots", "erratic"},
        erratic=0.3 if outputs == "erratic" else 0.0,
        forgets=random.choice((0.0, 0.0, 0.2)),
        keeps_inputs=random.random() < 0.3,
        uploads_first=random.random() < 0.3,
        base_bytes=random.choice((0, 0, 4096, 3 * MIB + 4096)),
        churn_bytes=random.choice((0, 0, 0, 28 * 1024)),
        donates=random.random() < 0.3,
        feeds=random.random() < 0.2,
        unloads=random.random() < 0.2,
        invalidates=random.choice((0.0, 0.0, 0.2)),
        program_cache=random.random() < 0.3,
        reopens=(random.randrange(2, passes),) if random.random() < 0.25 else (),
        seed=random.randrange(1 << 30),
    )


def random_style(random: Random) -> Style:
    """Any way of writing that has dumps."""
    return Style(
        level=random.choice(("operation", "operation", "any")),
        new_dialect=random.random() < 0.3,
        stages=random.choice((STAGES, STAGES, ("ttnn",), ("ttir", "ttnn"))),
        typed_dumps=random.random() < 0.8,
        compiles_late=random.random() < 0.4,
        cache_keys=random.random() < 0.8,
        prints=random.random() < 0.2,
    )


def random_traits(random: Random) -> Traits:
    """Any difficulties of graphs."""
    return Traits(
        lazy=random.random() < 0.5,
        alike=random.random() < 0.3,
        namesakes=random.random() < 0.3,
        caches=random.random() < 0.5,
        traced=random.choice((0.0, 0.0, 0.4)),
    )


def random_run(seed: int, *, style: Style | None = None, passes: int = 12) -> Runtime:
    """Graphs of one or two models in random order, with everything at once."""
    random = Random(seed)  # noqa: S311 - no secret
    graphs: list[Graph] = irregular_graphs(seed, num_graphs=random.randint(1, 4), traits=random_traits(random))
    if random.random() < 0.4:
        graphs += serving_graphs(random_model(seed + 1))
    order = [random.randrange(len(graphs)) for _ in range(passes)]
    host, chosen = random_host(random, passes), style or random_style(random)
    return execute(graphs, order=order, host=host, style=chosen, memories=wormhole())


def chaos_log(seed: int) -> Log:
    """Everything at once."""
    run = random_run(seed)
    return written(run.lines, run.style), run.truth


def beheaded_log(seed: int) -> Log:
    """The first part of a log is missing: cache hits come before their misses, and a dump may be cut in two."""
    run = random_run(seed, style=Style(stages=STAGES, compiles_late=True))
    random = Random(seed)  # noqa: S311 - no secret
    at = int(len(run.lines) * random.uniform(0.1, 0.6))
    gone = sum("memory state before operation" in line for line in run.lines[:at])
    truth = replace(run.truth, rows=run.truth.rows[gone:])
    return written(run.lines[at:], run.style), truth


def cut_in_a_dump(seed: int) -> Log:
    """The log ends within the last module dump."""
    run = random_run(seed, style=Style(stages=STAGES, compiles_late=True))
    starts = [number for number, line in enumerate(run.lines) if "MLIR Module ttnn:" in line]
    end = starts[-1] + 6 if len(starts) > 1 else len(run.lines)
    return written(run.lines[:end], run.style)[:-30], run.truth


def interleaved_ranks(seed: int, ranks: int = 3) -> tuple[bytes, list[Truth]]:
    """Processes with different models and hosts, whose lines are interleaved."""
    random = Random(seed)  # noqa: S311 - no secret
    style = random_style(random)
    runs = [random_run(1000 * rank + seed, style=style, passes=6) for rank in range(ranks)]
    return "\n".join([*interleaved([run.lines for run in runs], random), ""]).encode(), [run.truth for run in runs]


def interleaved(texts: Sequence[list[str]], random: Random) -> list[str]:
    """The lines of several processes, as mpirun mixes them."""
    waiting = [list(reversed(lines)) for lines in texts]
    mixed = []
    while any(waiting):
        rank = random.choice([rank for rank, lines in enumerate(waiting) if lines])
        for _ in range(min(random.randint(1, 4), len(waiting[rank]))):
            mixed.append(f"[1,{rank}]<stdout>: {waiting[rank].pop()}")
    return mixed
