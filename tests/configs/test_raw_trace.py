from pathlib import Path

import msgspec
import pytest

from tests.configs.test_ttnn_live import log_of
from torchstone.configs.exchange import is_raw_trace, log_configurations, read_raw_trace
from torchstone.errors import UnreadableFileError
from torchstone.record.codec import encode, save
from torchstone.record.config import OpLog, SourceEnding


def with_a_failure() -> OpLog:
    good, bad = log_of("x::good", "x::bad").sources
    return msgspec.structs.replace(log_of(), sources=(good, msgspec.structs.replace(bad, ending=SourceEnding.FAILED)))


def test_what_passed_counts_and_what_did_not_is_named() -> None:
    strict = log_configurations(with_a_failure(), keep_failing=False)
    everything = log_configurations(with_a_failure(), keep_failing=True)

    assert [(run.source, run.run) for run in strict.runs] == [("x::good", "r1")]
    assert [one.occurrences[0].source for one in strict.seen] == ["x::good"]
    assert [(part.where, part.reason) for part in strict.unread] == [("x::bad", "it failed, so its calls do not count")]
    assert len(everything.seen) == 2
    assert everything.unread == ()


def test_a_kept_trace_is_known_by_its_look_and_tells_the_same(tmp_path: Path) -> None:
    save(tmp_path / "log.json", with_a_failure())
    text = (tmp_path / "log.json").read_text()

    assert is_raw_trace(text)
    assert not is_raw_trace('{"schema":"torchstone/configurations/1"}')
    assert read_raw_trace(text, origin="log.json") == log_configurations(with_a_failure(), keep_failing=False)


def test_half_a_kept_trace_is_told_by_its_name() -> None:
    text = encode(with_a_failure()).decode()

    with pytest.raises(UnreadableFileError, match=r"log\.json is not a readable op_log file"):
        read_raw_trace(text[: len(text) // 2], origin="log.json")
