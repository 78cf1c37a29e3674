"""What launchers, containers and log collectors put in front of each line of a runtime's log.

The runtime's own lines have a fixed form, so whatever stands before it is a prefix: that of a known tool, or one that
is learned from the lines themselves. Without its prefix a line of a module dump, which has no form of its own, can be
read, and the processes of a multi-host run can be separated.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable

_ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_CATEGORY_WIDTH = 23
_OWN = re.compile(rb"([A-Za-z]\w{0,63}) \| +(?:TRACE|DEBUG|INFO|WARNING|ERROR|FATAL) \| ")
_FRAMEWORK = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?:\(|\| )")
_STAMP = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_KNOWN = (
    re.compile(rb"\[(?P<rank>\d{1,9},\d{1,9})\]<std(?:out|err|diag)>: ?"),  # mpirun --tag-output
    re.compile(rb"\[(?:rank|default)(?P<rank>\d{1,9})\]: ?"),  # torch.distributed, torchrun
    re.compile(_STAMP + rb" std(?:out|err) [FP] "),  # Kubernetes nodes (CRI)
    re.compile(_STAMP + rb" "),  # CI services, docker logs --timestamps
    re.compile(rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:\[]+(?:\[\d+\])?: "),  # journald, syslog
    re.compile(rb"\[pod/[^\]\s]+\] "),  # kubectl logs --prefix
)
_TASK = re.compile(rb" *(?P<rank>\d{1,5}): ")  # srun --label
_COMPOSE = re.compile(rb"[\w.-]+ +\| (?=.)")  # docker compose
_NUMBERED = re.compile(rb"(?:[\w./-]+:)?\d+[:-]")  # grep -n, grep -Hn
_MOST_LEARNED = 8
_LONGEST = 1_000  # bytes of a prefix that is learned
_MOST_TASKS = 4096
_WRAPPED = b"{"  # a line of Docker's json-file log, or of `journalctl -o json`
_TEXT_KEYS = ("log", "MESSAGE")


class Prefixes:
    """Removes the prefixes that a sample of the log has."""

    def __init__(self, patterns: Iterable["re.Pattern[bytes]"]) -> None:
        self._patterns = tuple(patterns)
        self._ranks: dict[bytes, str] = {}

    def strip(self, raw: bytes) -> tuple[str, bytes]:
        """The rank of a line ("" where it has none), and the line as the runtime wrote it."""
        line = _unwrap(raw) if raw.startswith(_WRAPPED) else raw
        rank = ""
        for _ in range(3):  # a stamp may stand before a rank, and a rank before a stamp
            for pattern in self._patterns:
                found = pattern.match(line)
                if found is not None and not _FRAMEWORK.match(line):
                    line = line[found.end() :]
                    rank = found.groupdict(b"").get("rank", b"").decode() or rank
                    break
            else:
                break
        return rank, line


def find_prefixes(sample: bytes) -> Prefixes | None:
    """The prefixes in front of the runtime's lines in a sample; None where it has lines and they have none."""
    prefixes = Counter(found for raw in sample.split(b"\n") if (found := _prefix_of(raw.rstrip(b"\r"))) is not None)
    if not prefixes or prefixes[b""] * 2 > prefixes.total():
        return None
    learned = Counter[bytes]()
    known: list[re.Pattern[bytes]] = list(_KNOWN)
    tasks = {text for text in prefixes if _TASK.fullmatch(text)}
    if tasks and len(tasks) <= _MOST_TASKS and sum(prefixes[text] for text in tasks) > len(tasks):
        known.append(_TASK)
    for optional in (_NUMBERED, _COMPOSE):
        if any(optional.fullmatch(text) for text in prefixes):
            known.append(optional)
    for text, count in prefixes.items():
        rest = _strip_known(text, known)
        if 0 < len(rest) <= _LONGEST:
            learned[_generalized(rest)] += count
    own = [re.compile(pattern) for pattern, _ in learned.most_common(_MOST_LEARNED)]
    return Prefixes([*known, *own])


def has_own_lines(sample: bytes) -> bool:
    """Whether a sample has any line by which prefixes can be recognized."""
    return any(_prefix_of(raw) is not None for raw in sample.split(b"\n"))


def _prefix_of(raw: bytes) -> bytes | None:
    """What stands before the runtime's own line; None for lines of other programs."""
    if b" | " not in raw and b"| MLIR Module " not in raw:
        return None
    unwrapped = _unwrap(raw) if raw.startswith(_WRAPPED) else raw
    line = _ESCAPES.sub(b"", unwrapped)
    wrapped = b"" if unwrapped is raw else _WRAPPED
    own = _OWN.search(line)
    if own is not None and (own.group(1) == b"Always" or own.group(1).startswith(b"Runtime")):
        end = own.end(1)
        start = max(end - _CATEGORY_WIDTH, 0)
        padding = line[start : own.start(1)]
        return wrapped + (line[:start] if not padding.strip() else line[: own.start(1)])
    found = _FRAMEWORK.search(line) if b"| MLIR Module " in line else None
    return None if found is None else wrapped + line[: found.start()]


def _strip_known(text: bytes, known: Iterable["re.Pattern[bytes]"]) -> bytes:
    rest = text.removeprefix(_WRAPPED)
    for _ in range(3):
        for pattern in known:
            found = pattern.match(rest)
            if found is not None:
                rest = rest[found.end() :]
    return rest if rest.strip() else b""


def _generalized(text: bytes) -> bytes:
    """A pattern for a prefix: its numbers may change, and output may be that of either stream."""
    escaped = re.sub(rb"\d+", rb"\\d+", re.escape(text))
    return re.sub(rb"std(?:out|err)", rb"std(?:out|err)", escaped)


def _unwrap(raw: bytes) -> bytes:
    """The text of a line that is a JSON document; any other line as it is."""
    try:
        document = json.loads(raw)
    except ValueError:
        return raw
    found = [document.get(key) for key in _TEXT_KEYS] if isinstance(document, dict) else []
    text = next((one for one in found if isinstance(one, str)), None)
    return text.rstrip("\r\n").encode(errors="surrogateescape") if isinstance(text, str) else raw
