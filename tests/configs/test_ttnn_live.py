from pathlib import Path

from tests.configs.test_ttnn_operations import call, folder_of
from torchstone.configs.ttnn_operations import with_ttnn_calls
from torchstone.record.config import (
    Configuration,
    Occurrence,
    OpLog,
    SeenConfiguration,
    SourceEnding,
    TargetKind,
    TracedSource,
)


def log_of(*names: str) -> OpLog:
    """A log in which each source called aten.neg once."""
    sources = tuple(
        TracedSource(
            name=name,
            ending=SourceEnding.PASSED,
            calls=1,
            configurations=(
                SeenConfiguration(
                    configuration=Configuration(op="aten.neg.default"),
                    occurrences=(Occurrence(source=name, run="r1", count=1),),
                ),
            ),
        )
        for name in names
    )
    roles = {"aten.neg.default": "compute"}
    return OpLog(target="t", kind=TargetKind.PYTEST, run="r1", created="now", sources=sources, roles=roles)


def test_each_source_gets_its_own_calls_beside_those_of_torch(tmp_path: Path) -> None:
    folder_of(tmp_path / "t" / "a", call(), call(), _status={"test_nodeid": "x::one", "status": "passed"})
    folder_of(tmp_path / "t" / "b", call(), _status={"test_nodeid": "x::two", "status": "failed"})
    folder_of(tmp_path / "t", _trace_metadata={"test_source": "x [HF_MODEL:acme/Tiny]", "trace_uid": "r1"})

    log, unread = with_ttnn_calls(log_of("x::one", "x::two"), tmp_path / "t")

    one, two = log.sources
    assert (one.calls, two.calls) == (3, 2)
    assert [seen.configuration.op for seen in one.configurations] == ["aten.neg.default", "ttnn.add"]
    (place,) = two.configurations[1].occurrences
    assert (place.source, place.run, place.model, place.count) == ("x::two", "r1", "acme/Tiny", 1)
    assert log.roles == {"aten.neg.default": "compute", "ttnn.add": "ttnn"}
    assert unread == ()


def test_half_a_file_is_named_and_costs_no_other_call(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "t" / "a", call(), _status={"test_nodeid": "x::one", "status": "passed"})
    (folder / "7_ttnn_add_20260101.json").write_text('{"operation_id": 7, "operat')

    log, unread = with_ttnn_calls(log_of("x::one"), tmp_path / "t")

    assert log.sources[0].calls == 2
    assert [part.where for part in unread] == ["7_ttnn_add_20260101.json"]


def test_a_log_without_such_a_folder_stays_as_it_is(tmp_path: Path) -> None:
    log = log_of("x::one")

    assert with_ttnn_calls(log, tmp_path / "none") == (log, ())
