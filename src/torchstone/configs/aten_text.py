"""Text traces of aten ops, as torch's benchmarks and BackendBench write them <-> SeenConfigurations.

    Operator: aten.addmm.default
    cnt: 49, ((T([768], f16), T([8192, 768], f16), T([768, 768], f16, stride=(1, 768))), {})

Each line is an occurrence of its own, so that a source can be written again byte for byte: a line that we would spell
in another way is kept with its occurrence, a line that holds no configuration with its run.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from torchstone.configs.aten_values import ArgumentTextError, call_text, parse_call
from torchstone.configs.exchange import Exported, Imported, Unread
from torchstone.record.config import (
    Configuration,
    Occurrence,
    SeenConfiguration,
    TraceFormat,
    TraceRun,
)
from torchstone.record.json_value import entry
from torchstone.record.value import Entries

_HEAD = "Operator: "
_LINE = re.compile(r"cnt: (?P<count>\d+), (?P<call>.*)")
_TEXT = "text"  # the detail that keeps a line as it was spelled
_SITE = "line "


def is_aten_text(text: str) -> bool:
    """Whether a text looks like a trace of aten ops."""
    head = text[:2000].splitlines()
    return any(line.startswith(_HEAD) for line in head) or any(_LINE.fullmatch(line) for line in head)


def read_aten_text(text: str, *, source: str, run: str, model: str) -> Imported:
    """The configurations of a text trace."""
    op = ""
    seen: dict[str, list[SeenConfiguration]] = {}
    heads: dict[int, str] = {}
    kept: dict[int, str] = {}
    unread: list[Unread] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_HEAD):
            op = line.removeprefix(_HEAD).strip()
            heads[number] = line
            continue
        try:
            one = _seen(line, op, Occurrence(source=source, run=run, model=model, call_site=f"{_SITE}{number}"))
        except ArgumentTextError as error:
            kept[number] = line
            if line.strip():
                unread.append(Unread(where=f"line {number}", reason=str(error)))
            continue
        seen.setdefault(one.key, []).append(one)
        if heads.get(number - 1) == _HEAD + op:
            del heads[number - 1]  # the configuration below it remembers it
    lines = tuple(sorted((kept | heads).items()))
    return Imported(
        runs=(TraceRun(source=source, run=run, format=TraceFormat.ATEN_TEXT, kept_lines=lines),),
        seen=tuple(_together(same) for same in seen.values()),
        unread=tuple(unread),
    )


def _together(same: list[SeenConfiguration]) -> SeenConfiguration:
    places = tuple(place for one in same for place in one.occurrences)
    return SeenConfiguration(configuration=same[0].configuration, occurrences=places)


def _seen(line: str, op: str, place: Occurrence) -> SeenConfiguration:
    found = _LINE.fullmatch(line)
    if found is None or not op:
        msg = "it is neither the heading of an operator nor a call of one"
        raise ArgumentTextError(msg)
    arguments = parse_call(found["call"])
    count = int(found["count"])
    as_written = line == _line(count, call_text(arguments))
    occurrence = Occurrence(
        source=place.source,
        run=place.run,
        model=place.model,
        call_site=place.call_site,
        details=None if as_written else Entries(entries=((_TEXT, line),)),
        count=count,
    )
    return SeenConfiguration(configuration=Configuration(op=op, arguments=arguments), occurrences=(occurrence,))


def _line(count: int, call: str) -> str:
    return f"cnt: {count}, {call}"


def write_source(run: TraceRun, seen: Iterable[SeenConfiguration]) -> str:
    """The text that a run was read from, byte for byte."""
    lines = dict(run.kept_lines)
    ops: dict[int, str] = {}
    for one in seen:
        for place in one.occurrences:
            if (place.source, place.run) == (run.source, run.run) and place.call_site.startswith(_SITE):
                number = int(place.call_site.removeprefix(_SITE))
                ops[number] = one.configuration.op
                lines[number] = _as_spelled(one.configuration, place)
    for number, op in ops.items():
        if number - 1 not in lines:
            lines[number - 1] = _HEAD + op
    return "\n".join(lines[number] for number in sorted(lines) if number > 0)


def _as_spelled(configuration: Configuration, place: Occurrence) -> str:
    spelled = entry(place.details, _TEXT)
    return spelled if isinstance(spelled, str) else _line(place.count or 0, call_text(configuration.arguments))


def export_aten(runs: Sequence[TraceRun], seen: Iterable[SeenConfiguration]) -> Exported:
    """Configurations of aten ops as text: the one text trace they come from again, or all that fit, added up."""
    writable: list[tuple[str, str, SeenConfiguration]] = []
    left_out: dict[str, int] = {}
    for one in seen:
        try:
            writable.append((one.configuration.op, _call(one.configuration), one))
        except ArgumentTextError as reason:
            left_out[str(reason)] = left_out.get(str(reason), 0) + 1
    if len(runs) == 1 and runs[0].format is TraceFormat.ATEN_TEXT:
        text = write_source(runs[0], (one for _, _, one in writable))
    else:
        text = "\n".join([*_merged_lines(writable), ""])
    return Exported(text=text, configurations=len(writable), left_out=left_out)


def _call(configuration: Configuration) -> str:
    if not configuration.op.startswith("aten."):
        msg = "an op that is not aten's"
        raise ArgumentTextError(msg)
    return call_text(configuration.arguments)


def _merged_lines(writable: list[tuple[str, str, SeenConfiguration]]) -> Iterator[str]:
    """By op; the calls of all places added up."""
    head = None
    for op, call, one in sorted(writable, key=itemgetter(0, 1)):
        if op != head:
            head = op
            yield _HEAD + op
        yield _line(one.calls, call)
