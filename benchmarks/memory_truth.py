"""How often the live tensors that `memory` names are exactly those of a simulated device.

    PYTHONPATH=src:. python benchmarks/memory_truth.py [SEEDS] [FIRST SEED]

A simulated runtime writes logs of a served model in variants that real logs have, and keeps the truth beside them. A
live set is exact when every buffer has the right owner and size and what is left is the memory that no line names. A
violation is a set whose parts do not add up to the reading; there must be none. Addresses are those that the replayed
allocator gives, at the snapshots for which it gives any; two logs in which the order of uploads cannot be decided are
listed apart. Advice is checked by making the proposed change, and running the same program on the same device again.
With TORCHSTONE_TTNN, the environment of `make test-ttnn`, readings and addresses of real ttnn are compared, too.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.memory.ledger_truth import Agreement, address_agreement
from tests.memory.log_generator.device import MIB, Memory, blackhole, wormhole
from tests.memory.log_generator.graphs import random_graph
from tests.memory.log_generator.irregular import Traits, irregular_graphs
from tests.memory.log_generator.run import Host, Truth, execute, generate
from tests.memory.log_generator.serving import STAGES, random_model, ranked_log, serving_graphs, serving_log
from tests.memory.log_generator.style import Style, written
from tests.memory.log_generator.variants import beheaded_log, chaos_log, cut_in_a_dump, interleaved_ranks
from tests.memory.real_run import real_run, truth_of
from torchstone.memory.documents import registry_document
from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study
from torchstone.memory.ttnn_files import read_ttnn_file

Log = tuple[bytes, Truth]
_WITHOUT_NAMES = ("no dumps", "begins in the middle")


def variants() -> dict[str, Callable[[int], Log]]:
    """Each makes a log from a seed."""
    return {
        "two prefills and decode": serving_log,
        "decode first": lambda seed: serving_log(seed, order=(2, 0, 2, 1, 0, 2)),
        "outputs kept": lambda seed: serving_log(seed, host=Host(keeps_outputs=True)),
        "inputs kept": lambda seed: serving_log(seed, host=Host(keeps_inputs=True)),
        "weights first": lambda seed: serving_log(seed, host=Host(uploads_first=True)),
        "memory of others": lambda seed: serving_log(seed, host=Host(base_bytes=3 * MIB + 4096 * (seed % 7))),
        "memory that comes and goes": lambda seed: serving_log(seed, host=Host(churn_bytes=7 * 4096 + 32 * seed)),
        "any level": lambda seed: serving_log(seed, style=Style(level="any", stages=STAGES)),
        "only ttnn dumps": lambda seed: serving_log(seed, style=Style(stages=("ttnn",))),
        "dumps without types": lambda seed: serving_log(seed, style=Style(stages=STAGES, typed_dumps=False)),
        "new dialect": lambda seed: serving_log(seed, style=Style(stages=STAGES, new_dialect=True)),
        "random graphs": lambda seed: generate([random_graph(seed), random_graph(seed + 9, module="B")], passes=3),
        "outputs replaced": lambda seed: serving_log(seed, host=Host(replaces_outputs=True)),
        "dumps before first use": lambda seed: serving_log(seed, style=Style(stages=STAGES, compiles_late=True)),
        "no cache keys": lambda seed: serving_log(seed, style=Style(stages=STAGES, cache_keys=False)),
        "irregular": _irregular,
        "irregular, outputs replaced": lambda seed: _irregular(seed, host=Host(replaces_outputs=True)),
        "irregular, outputs kept": lambda seed: _irregular(seed, host=Host(keeps_outputs=True)),
        "irregular, any level": lambda seed: _irregular(seed, style=Style(level="any", stages=STAGES)),
        "irregular, no cache keys": lambda seed: _irregular(seed, style=Style(stages=STAGES, cache_keys=False)),
        "irregular, late dumps": lambda seed: _irregular(seed, style=Style(stages=STAGES, compiles_late=True)),
        "irregular, Blackhole": lambda seed: _irregular(seed, memories=blackhole()),
        "traced": lambda seed: generate(
            [random_graph(seed, traced=True), random_graph(seed + 9, module="B")], passes=3
        ),
        "a habit for each output": lambda seed: serving_log(seed, host=Host(slots=True, seed=seed)),
        "inputs donated": lambda seed: _irregular(seed, host=Host(donates=True)),
        "outputs fed back": lambda seed: _irregular(seed, host=Host(feeds=True)),
        "two tests in one process": _two_tests,
        "const-evals computed again": lambda seed: _irregular(seed, host=Host(invalidates=0.3, seed=seed)),
        "program cache": lambda seed: _irregular(seed, host=Host(program_cache=True)),
        "program cache, outputs kept": lambda seed: serving_log(
            seed, host=Host(program_cache=True, keeps_outputs=True)
        ),
        "late deallocates": lambda seed: _irregular(seed, traits=Traits(lazy=True)),
        "weights first, outputs kept": lambda seed: _irregular(seed, host=Host(uploads_first=True, keeps_outputs=True)),
        "several of these": lambda seed: serving_log(
            seed,
            host=Host(slots=True, donates=True, program_cache=True, invalidates=0.1, base_bytes=4096 * seed, seed=seed),
        ),
        "first-pass out of memory": _starved,
        "cut at the end": lambda seed: _cut(seed, 0.3 + 0.6 * (seed % 10) / 10),
        "everything at once": chaos_log,
        "cut within a dump": cut_in_a_dump,
        "begins in the middle": beheaded_log,
        "alike, namesakes, KV caches": lambda seed: _irregular(
            seed, traits=Traits(alike=True, namesakes=True, caches=True)
        ),
        "irregular, traced": lambda seed: _irregular(seed, traits=Traits(traced=0.5)),
        "device opened twice": lambda seed: _irregular(seed, host=Host(reopens=(3 + seed % 4,), program_cache=True)),
        "habits that change": lambda seed: _irregular(seed, host=Host(slots=True, erratic=0.3, seed=seed)),
        "kept outputs freed later": lambda seed: _irregular(
            seed, host=Host(keeps_outputs=True, forgets=0.2, seed=seed)
        ),
        "no dumps": lambda seed: serving_log(seed, style=Style(dumps=False)),
    }


def _starved(seed: int) -> Log:
    """Out of memory in the first pass: the device is somewhat smaller than what that pass needs."""
    _, truth = serving_log(seed, order=(0,))
    needed = max(sum(size for _, size in row.live["DRAM"]) for row in truth.rows)
    return serving_log(seed, memories=wormhole(dram_bytes=needed * (5 + seed % 4) // 9 // 32 * 32))


def _irregular(
    seed: int,
    *,
    host: Host | None = None,
    style: Style | None = None,
    memories: dict[str, Memory] | None = None,
    traits: Traits | None = None,
) -> Log:
    """Three graphs that share weights, in a random order."""
    random = Random(seed)  # noqa: S311 - no secret
    order = [random.randrange(3) for _ in range(8)]
    return generate(
        irregular_graphs(seed, traits=traits),
        order=order,
        host=host,
        style=style or Style(stages=STAGES),
        memories=memories,
    )


def _two_tests(seed: int) -> Log:
    """Two models, one after the other, as in a test session: the first is freed, and in odd logs comes back."""
    random = Random(seed)  # noqa: S311 - no secret
    graphs = [*irregular_graphs(seed), *serving_graphs(random_model(seed + 1))]
    order = [*(random.randrange(3) for _ in range(5)), 3, 5, 5, 4, 5]
    order += [random.randrange(3) for _ in range(3)] if seed % 2 else []
    style = Style(stages=STAGES, compiles_late=bool(seed % 3))
    return generate(graphs, order=order, host=Host(unloads=True), style=style)


def _cut(seed: int, share: float) -> Log:
    log, truth = serving_log(seed)
    return log[: int(len(log) * share)], truth


def studies(seed: int) -> Iterator[tuple[str, Study, Truth]]:
    """Every variant of one seed, read."""
    for name, make in variants().items():
        log, truth = make(seed)
        yield name, Study(parse_log(log.splitlines(keepends=True))), truth
    log, truths = ranked_log(seed, late=seed % 2 == 1)
    for rank, truth in enumerate(truths):
        study = Study(parse_log(log.splitlines(keepends=True), rank=f"1,{rank}"))
        yield f"rank {rank} of two", study, truth
    study = Study(parse_log(log.splitlines(keepends=True)))
    yield "lowest rank by default", study, truths[0]
    log, truths = interleaved_ranks(seed)
    for rank, truth in enumerate(truths):
        yield "three irregular ranks", Study(parse_log(log.splitlines(keepends=True), rank=f"1,{rank}")), truth


def registry_is_exact(seed: int, style: Style) -> bool:
    """Whether each argument of each graph is listed once, with its kind, shape and size."""
    graphs = serving_graphs(random_model(seed))
    log, _ = serving_log(seed, style=style)
    study = Study(parse_log(log.splitlines(keepends=True)))
    rows = json.loads(json.dumps(registry_document(study, "x")))["arguments"]
    found = sorted((row["module"], row["name"], row["kind"], tuple(row["shape"]), row["bytes"]) for row in rows)
    wanted = sorted(
        (graph.module, one.name, one.kind, one.tensor.shape, one.tensor.logical_bytes())
        for graph in graphs
        for one in graph.arguments
    )
    return found == wanted


def advice(seeds: range) -> dict[tuple[bool | None, bool], int]:
    """How often "the KV cache in bfloat8_b would fit" was said, and what the device did: passed the op, or not."""
    found: Counter[tuple[bool | None, bool]] = Counter()
    style, order = Style(stages=STAGES), (0, 2, 1, 2, 0, 2, 2)
    for seed in seeds:
        model = replace(random_model(seed), cache_dtype="bf16", context=512 + 96 * (seed % 5))
        host = Host(keeps_outputs=seed % 3 == 0)
        whole = execute(serving_graphs(model), style=style, host=host, order=order).truth
        needed = max(sum(size for _, size in row.live["DRAM"]) for row in whole.rows)
        for percent in (60, 75, 85, 93, 97):
            size = needed * percent // 100 // 32 * 32
            before, after = (
                execute(serving_graphs(one), style=style, host=host, order=order, memories=wormhole(dram_bytes=size))
                for one in (model, replace(model, cache_dtype="bfp_bf8"))
            )
            failure = explain_last_failure(Study(parse_log(written(before.lines, style).splitlines(keepends=True))))
            for change in failure.changes if failure is not None and before.truth.failed_row >= 0 else ():
                if change.change == "the KV cache in bfloat8_b":
                    passed = after.truth.out_of_memory is None or after.truth.failed_row > before.truth.failed_row
                    found[change.fits, passed] += 1
    return found


def main() -> None:
    """Print one row per variant, and the totals."""
    given = [int(one) for one in sys.argv[1:] if one.isdecimal()]
    first = given[1] if len(given) > 1 else 0
    seeds = range(first, first + (given[0] if given else 5))
    found: dict[str, Agreement] = {}
    placed: dict[str, Counter[str]] = {}
    for seed in seeds:
        for name, study, truth in studies(seed):
            for memory in ("DRAM", "L1"):
                right, total = address_agreement(study, truth, memory)
                placed.setdefault(name, Counter()).update({f"{memory} right": right, f"{memory} placed": total})
            found.setdefault(name, Agreement(sizes_only=name in _WITHOUT_NAMES)).add(
                study, truth, f"seed {seed}", every=3
            )
    print(
        f"{'variant':<28} {'sets':>7} {'DRAM':>8} {'L1':>8} {'unknown':>8} {'wrong':>6} {'violations':>10} "
        f"{'addresses right':>16}"
    )
    for name, one in found.items():
        mine = placed[name]
        right, total = (sum(mine[f"{memory} {what}"] for memory in ("DRAM", "L1")) for what in ("right", "placed"))
        print(row(name, one), f"{right:>8}/{total:<7}", flush=True)
        for wrong in one.wrong[: 2 if "-v" in sys.argv else 0]:
            print("     ", wrong)
    styles = {
        "all stages": Style(stages=STAGES),
        "INFO only": Style(stages=STAGES, info_only=True),
        "INFO only, any level": Style(stages=STAGES, info_only=True, level="any"),
    }
    for name, style in styles.items():
        exact = sum(registry_is_exact(seed, style) for seed in seeds)
        print(f"registry, {name}: exact in {exact} of {len(seeds)}")
    if "TORCHSTONE_TTNN" in os.environ:
        on_real_allocator(seeds)
    words = {True: "would fit", False: "would not fit", None: "cannot be said"}
    for (said, passed), times in sorted(advice(range(first, first + 4 * len(seeds))).items(), key=str):
        print(f"advice: {words[said]}, and the device {'passed' if passed else 'failed at'} the op: {times} times")


def on_real_allocator(seeds: range) -> None:
    """The same with the allocator of real ttnn on its mock boards: readings and addresses are its own."""
    found: Counter[str] = Counter()
    for seed in seeds:
        for board in ("n150", "p150"):
            with TemporaryDirectory() as name:
                folder = Path(name)
                document = real_run(os.environ["TORCHSTONE_TTNN"], folder, seed, board)
                lines = (folder / "run.log").read_bytes().splitlines(keepends=True)
                truth, study = truth_of(document), Study(parse_log(lines))
                report = read_ttnn_file(folder / "report.json")
            sets = Agreement()
            sets.add(study, truth, "")
            found.update(sets=sum(sets.sets.values()), exact=sum(sets.exact.values()))
            for memory in ("DRAM", "L1"):
                right, total = address_agreement(study, truth, memory)
                found.update(right=right, placed=total, snapshots=len(study.timeline.ops))
            stated = sorted((one.memory, one.address, one.bank_bytes) for one in report.allocations if one.value)
            made = sorted(tuple(one) for one in document["events"])
            found.update(stated=len(stated), equal=sum((Counter(stated) & Counter(made)).values()), made=len(made))
    print(
        f"real allocator: {found['exact']} of {found['sets']} live sets exact; every address right at {found['right']} "
        f"of {found['placed']} snapshots with addresses, of {found['snapshots']}; {found['equal']} of {found['made']} "
        f"buffers at the address of the graph capture ({found['stated']} stated)"
    )


def row(name: str, one: Agreement) -> str:
    """One line of the table."""
    shares = (f"{100 * one.exact[memory] / max(one.sets[memory], 1):7.2f}%" for memory in ("DRAM", "L1"))
    total = sum(one.sets.values())
    missing = total - sum(one.exact.values())
    unknown = sum(one.named.values())
    return f"{name:<28} {total:>7} {' '.join(shares)} {unknown:>8} {missing - unknown:>6} {one.violations:>10}"


if __name__ == "__main__":
    main()
