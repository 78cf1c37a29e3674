from tests.memory.log_generator.style import Style
from tests.memory.timelines import study_of
from torchstone.record.memory_findings import Origin


def test_arguments_are_called_as_the_registry_calls_them() -> None:
    study, _ = study_of(3)

    assert study.owners.argument(0, "%arg0") == (Origin.INPUT, "args_0")
    assert study.owners.argument(0, "%arg1") == (Origin.PARAMETER, "SyncTensorsGraph.1.layers.0.weight")


def test_without_a_registry_an_argument_is_known_by_its_position() -> None:
    study, _ = study_of(3, style=Style(dumps=False))

    assert study.owners.argument(1, "%arg0") == (Origin.INPUT, "%arg0 of graph 1")


def test_every_const_eval_leaves_results_under_a_key_of_its_own() -> None:
    study, truth = study_of(3)

    cached = study.owners.cached_results

    programs = {(row.graph, row.program) for row in truth.rows if row.const_eval}
    assert len({found.key for found in cached}) == len(cached) == len(programs)


def test_a_hit_finds_the_key_of_the_run_that_filled_the_cache() -> None:
    study, _ = study_of(3)
    keys = {found.key for found in study.owners.cached_results}

    loads = [op for op in range(len(study.calls)) if "load_cached" in study.name_of(op)]
    last = loads[-1]
    call = study.call(last)

    assert call is not None
    assert study.owners.hit_key(last, call) in keys
