"""What importers and exporters give back."""

from collections.abc import Iterable

import msgspec

from torchstone.record.base import Record
from torchstone.record.config import Occurrence, SeenConfiguration, TraceRun, in_order
from torchstone.record.value import Argument, Value

RUN_LETTERS = 16  # of the digest that names a run without a name: enough to tell versions of a file apart


class Unread(Record, frozen=True, kw_only=True):
    """A part of a file that no configuration could be made from; the file itself is left as it is."""

    where: str  # "line 12", "ttnn::add, configuration 3"
    reason: str


class Imported(Record, frozen=True, kw_only=True):
    """The configurations of one file or folder."""

    runs: tuple[TraceRun, ...]
    seen: tuple[SeenConfiguration, ...]
    unread: tuple[Unread, ...] = ()


class Exported(Record, frozen=True, kw_only=True):
    """The text of a file, and what is not in it."""

    text: str
    configurations: int
    left_out: dict[str, int] = {}  # configurations that the format has no words for, by where they came from


def bound(name: str, value: Value) -> Argument:
    """An argument of a file that calls positional ones arg0, arg1, ... and the others by their names."""
    digits = name.removeprefix("arg")
    positional = name.startswith("arg") and digits.isascii() and digits.isdigit()
    return Argument(name=name, value=value, position=int(digits) if positional else None)


def counted(calls: Iterable[SeenConfiguration]) -> tuple[SeenConfiguration, ...]:
    """Calls, one record for each, as configurations: so often at each place."""
    together: dict[str, list[SeenConfiguration]] = {}
    for call in calls:
        together.setdefault(call.key, []).append(call)
    return tuple(_counted(same) for same in together.values())


def _counted(calls: list[SeenConfiguration]) -> SeenConfiguration:
    places: dict[bytes, tuple[Occurrence, int]] = {}
    for call in calls:
        for place in call.occurrences:
            text = msgspec.json.encode(place)
            places[text] = (place, places[text][1] + 1 if text in places else 1)
    return in_order(
        SeenConfiguration(
            configuration=calls[0].configuration,
            occurrences=tuple(msgspec.structs.replace(place, count=count) for place, count in places.values()),
            facts=tuple(fact for call in calls for fact in call.facts),
            foreign=tuple(name for call in calls for name in call.foreign),
            damage=tuple(broken for call in calls for broken in call.damage),
        )
    )
