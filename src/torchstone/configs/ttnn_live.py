"""An OpLog and what ttnn's own tracer wrote during the same run -> one OpLog with both."""

from collections import defaultdict
from pathlib import Path

from msgspec.structs import replace

from torchstone.configs.exchange import Unread
from torchstone.configs.ttnn_operations import read_trace_folder
from torchstone.record.config import SeenConfiguration
from torchstone.record.op_log import OpLog, TracedSource

ROLE = "ttnn"  # of every op of ttnn: they have no schema that would say more


def with_ttnn_calls(log: OpLog, folder: Path) -> tuple[OpLog, tuple[Unread, ...]]:
    """The log with the calls that stand in the folder, each at its source; and the files that could not be read."""
    if not folder.is_dir():
        return log, ()
    imported = read_trace_folder(folder, keep_failing=True)
    seen = _by_source(imported.seen)
    roles = log.roles | {one.configuration.op: ROLE for one in imported.seen}
    sources = tuple(_joined(source, seen[source.name]) for source in log.sources)
    return replace(log, sources=sources, roles=roles), imported.unread


def _by_source(configurations: tuple[SeenConfiguration, ...]) -> defaultdict[str, list[SeenConfiguration]]:
    found: defaultdict[str, list[SeenConfiguration]] = defaultdict(list)
    for one in configurations:
        for source in dict.fromkeys(place.source for place in one.occurrences):
            places = tuple(place for place in one.occurrences if place.source == source)
            found[source].append(replace(one, occurrences=places))
    return found


def _joined(source: TracedSource, seen: list[SeenConfiguration]) -> TracedSource:
    return replace(
        source,
        calls=source.calls + sum(one.calls for one in seen),
        configurations=(*source.configurations, *seen),
    )
