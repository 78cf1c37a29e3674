import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.cli.sweeps import vectors_in
from tests.store.postgres import fresh_schema
from tests.sweep.builders import call, mm, result, seen, tensor, vector
from tests.sweep.builders import run as run_of
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS
from torchstone.record.chain import Step, configuration_of, result_of_step
from torchstone.record.check import Outcome
from torchstone.record.config import Configuration
from torchstone.record.value import Argument
from torchstone.record.vector import Status, SweepPlan, SweepRun
from torchstone.store.database import Store
from torchstone.store.sweeps import add_sweep
from torchstone.sweep.folder import new_run

LINEAR = call("aten.linear.default", input=tensor(2, 3), weight=tensor(4, 3), bias=None)


def test_what_a_sweep_ran_is_held_against_what_was_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    vectors_in(Path("sweep"), mm())
    vectors = (vector(mm()), vector(LINEAR))
    made = new_run(Path("sweep"), SweepPlan(run=run_of("r1"), vectors=vectors))
    with made.journal() as journal:
        for one in vectors:
            journal.keep(one.id, result(one.id))

    assert run(["sweep", "retrace", "--json"]) == EXIT_FINDINGS

    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"match": 1, "diff": 0, "missing": 1, "not told": 0}


def planned_run(configurations: Sequence[Configuration], outcomes: Sequence[Outcome]) -> tuple[SweepPlan, SweepRun]:
    vectors = tuple(vector(one) for one in configurations)
    results = tuple(
        result(one.id, outcome, configuration=one.id, op=one.op) for one, outcome in zip(vectors, outcomes, strict=True)
    )
    head = run_of("r1", selected=len(vectors))
    return SweepPlan(run=head, vectors=vectors), replace(head, results=results)


def in_database(address: str, configurations: Sequence[Configuration], finished: SweepRun) -> None:
    with Store.open(address) as store:
        store.add(map(seen, configurations))
        add_sweep(store, finished)


def test_a_run_of_a_database_is_recorded_as_that_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], postgres_url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    chain = configuration_of(
        [
            Step(op="aten.mm.default", arguments=mm().arguments),
            Step(op="aten.relu.default", arguments=(Argument(name="self", value=result_of_step(0, "0")),)),
        ]
    )
    calls = [mm(), LINEAR, chain, mm(5)]
    outcomes = [Outcome.PASSED, Outcome.WRONG, Outcome.PASSED, Outcome.NOT_RUN]
    plan, finished = planned_run(calls, outcomes)
    made = new_run(Path("sweep"), plan)
    with made.journal() as journal:
        for one in finished.results:
            journal.keep(one.id, one)
    for address in ("runs.db", postgres_url):
        in_database(address, calls, finished)

    documents = []
    for source in (["--dir", "sweep"], ["--db", "runs.db"], ["--db", postgres_url]):
        assert run(["sweep", "retrace", "--json", *source]) == EXIT_FINDINGS
        documents.append(json.loads(capsys.readouterr().out))

    assert documents[0]["counts"] == {"match": 2, "diff": 0, "missing": 1, "not told": 0}
    assert documents[0]["left_out"] == 1
    assert documents[1] == documents[0]
    assert documents[2] == documents[0]


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12, unique=True),
    stored=st.sets(st.integers(0, 9)),
    outcomes=st.lists(st.sampled_from(list(Outcome)), min_size=12, max_size=12),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_databases_have_the_same_vectors_of_a_run(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: str,
    sizes: list[int],
    stored: set[int],
    outcomes: list[Outcome],
) -> None:
    from torchstone.workflows.sweep_results import RetraceRequest, _ran_in_database

    _, finished = planned_run([mm(size) for size in sizes], outcomes[: len(sizes)])
    known = [mm(size) for size in sorted(stored)]
    sqlite = str(tmp_path_factory.mktemp("runs") / "runs.db")
    postgres = fresh_schema(postgres_server)
    for address in (sqlite, postgres):
        in_database(address, known, finished)
    here, there = (_ran_in_database(RetraceRequest(), address) for address in (sqlite, postgres))

    assert here == there
    ran = {one.id for one in finished.results if one.status is not Status.NOT_RUN}
    assert [one.id for one in here[1]] == sorted(ran & {one.key for one in known})
    assert here[2] == len(sizes)
