import pytest

from torchstone.record.codec import decode, encode
from torchstone.record.config import Configuration, OpLog, SeenConfiguration, SourceEnding, TargetKind, TracedSource


def log() -> OpLog:
    configuration = Configuration(op="aten.neg.default")
    return OpLog(
        target="tests",
        kind=TargetKind.PYTEST,
        run="1",
        created="2026-01-01T00:00:00+00:00",
        sources=tuple(
            TracedSource(name=ending, ending=ending, configurations=(SeenConfiguration(configuration=configuration),))
            for ending in SourceEnding
        ),
    )


@pytest.mark.parametrize(("keep_failing", "kept"), [(False, ["passed"]), (True, ["passed", "failed"])])
def test_what_failed_counts_only_where_asked_for_and_what_was_skipped_never(
    keep_failing: bool,  # noqa: FBT001 - a parameter of the test
    kept: list[str],
) -> None:
    assert [source.name for source in log().kept(keep_failing=keep_failing)] == kept


def test_an_op_log_survives_its_file() -> None:
    assert decode(encode(log()), OpLog, origin="here") == log()
