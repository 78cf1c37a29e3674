"""A change that was replayed must give the peak of a run in which the change was really made."""

from dataclasses import replace

import pytest

from tests.memory.log_generator.device import wormhole
from tests.memory.log_generator.run import Host, execute
from tests.memory.log_generator.serving import STAGES, random_model, serving_graphs, serving_log
from tests.memory.log_generator.style import Style, written
from torchstone.memory.counterfactual import replay_changes
from torchstone.memory.documents import peak_changes
from torchstone.memory.growth import find_growth
from torchstone.memory.out_of_memory import explain_last_failure
from torchstone.memory.read_log import parse_log
from torchstone.memory.study import Study, tick_bytes
from torchstone.memory.usage import find_peaks
from torchstone.record.memory_findings import Verdict

ORDER = (0, 2, 2, 1, 2, 2, 2)
TICKS = 3 * 1049


def study_of(log: bytes) -> Study:
    return Study(parse_log(log.splitlines(keepends=True)))


def peak_bytes(study: Study) -> int:
    dram = next(peak for peak in find_peaks(study) if peak.memory == "DRAM")
    return tick_bytes(study.timeline, dram.state.allocated)


@pytest.mark.parametrize("seed", [0, 1, 4, 7])
def test_dropping_kept_outputs_gives_the_peak_of_a_host_that_drops_them(seed: int) -> None:
    kept = study_of(serving_log(seed, order=ORDER, host=Host(keeps_outputs=True))[0])
    dropped = study_of(serving_log(seed, order=ORDER)[0])

    (change,) = [one for one in peak_changes(kept) if "outputs of earlier passes" in one.change]

    assert abs(change.peak_bytes - peak_bytes(dropped)) <= TICKS


@pytest.mark.parametrize("seed", range(6))
def test_a_smaller_kv_cache_gives_the_peak_of_a_model_that_has_one(seed: int) -> None:
    models = [replace(random_model(seed), cache_dtype=dtype, context=4096) for dtype in ("bf16", "bfp_bf8")]
    wide, narrow = (
        study_of(written(execute(serving_graphs(model), style=Style(stages=STAGES), order=ORDER).lines, Style()))
        for model in models
    )

    (change,) = [one for one in peak_changes(wide) if "KV cache" in one.change]

    assert abs(change.peak_bytes - peak_bytes(narrow)) <= TICKS


def test_of_an_out_of_memory_only_replayed_changes_are_advice() -> None:
    _, healthy = serving_log(5, order=(0,))
    needed = max(sum(size for _, size in row.live["DRAM"]) for row in healthy.rows)
    study = study_of(serving_log(5, memories=wormhole(dram_bytes=needed // 3 // 32 * 32))[0])

    found = explain_last_failure(study)

    assert found is not None
    assert found.verdict is Verdict.CAPACITY
    assert found.needed_bytes is not None
    assert found.free_bytes is not None
    for change in found.changes:
        if change.fits is not None and not change.change.startswith("the result"):
            assert change.fits == (found.free_bytes + change.saved_bytes >= found.needed_bytes)
    assert sorted(found.changes, key=lambda one: -one.saved_bytes) == list(found.changes)


def test_without_names_nothing_is_advised() -> None:
    study = study_of(serving_log(1, order=(0,), style=Style(info_only=True))[0])

    assert replay_changes(study, "DRAM", 3) == ()


@pytest.mark.parametrize("seed", [0, 1, 5, 7])
def test_outputs_that_are_kept_are_named_as_the_cause_of_growth(seed: int) -> None:
    order = (0, *(2,) * 12)
    log, truth = serving_log(seed, order=order, host=Host(keeps_outputs=True))
    study = study_of(log)
    output = next(size for owner, size in truth.rows[-1].live["DRAM"] if owner == "kept output")

    (growth,) = [one for one in find_growth(study) if one.memory == "DRAM"]

    assert abs(growth.bytes_per_pass - output) <= 200
    assert [part.kind for part in growth.parts] == ["kept outputs"]
    assert growth.parts[0].owner == f"graph {growth.graph}"
    assert growth.passes_left is not None
    room = (1 << 30) - max(sum(size for _, size in row.live["DRAM"]) for row in truth.rows)
    assert abs(growth.passes_left - room / output) <= room / output * 0.05


def test_a_steady_run_does_not_grow() -> None:
    assert find_growth(study_of(serving_log(1, order=(0, *(2,) * 12))[0])) == ()
    assert find_growth(study_of(serving_log(1, order=(0, *(2,) * 12), host=Host(churn_bytes=8192))[0])) == ()
