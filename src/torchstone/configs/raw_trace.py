"""What one `torchstone trace` saw (an OpLog, or its file) -> the configurations that count."""

from torchstone.configs.exchange import Imported, Unread
from torchstone.record.codec import decode
from torchstone.record.config import TraceRun
from torchstone.record.op_log import OpLog

_BEGINNING = '{"schema":"torchstone/op_log/'


def is_raw_trace(text: str) -> bool:
    """Whether a text is what `torchstone trace --store` keeps."""
    return text.startswith(_BEGINNING)


def read_raw_trace(text: str, *, origin: str, keep_failing: bool = False) -> Imported:
    """The configurations of a kept trace."""
    return what_counts(decode(text.encode(), OpLog, origin=origin), keep_failing=keep_failing)


def what_counts(log: OpLog, *, keep_failing: bool) -> Imported:
    """The configurations of the sources that passed, or of all that ran; the others are named."""
    kept = log.kept(keep_failing=keep_failing)
    return Imported(
        runs=tuple(TraceRun(source=source.name, run=log.run) for source in kept),
        seen=tuple(seen for source in kept for seen in source.configurations),
        unread=tuple(
            Unread(where=source.name, reason=f"it {source.ending.value}, so its calls do not count")
            for source in log.sources
            if source not in kept
        ),
    )
