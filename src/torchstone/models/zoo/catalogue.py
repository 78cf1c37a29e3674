"""The catalogue: each entry is the published hyper-parameters of one model, checked by its number of parameters."""

from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec

from torchstone.record.base import Record

_NEAR = 3


class Kind(StrEnum):
    """The domain of a model."""

    TEXT = "text"
    TEXT_TO_TEXT = "text2text"
    MIXTURE_OF_EXPERTS = "moe"
    STATE_SPACE = "ssm"
    VISION = "vision"
    AUDIO = "audio"
    MULTIMODAL = "multimodal"


class Quantization(Record, frozen=True, kw_only=True):
    """The format of the matrices of a published checkpoint; the rest has the dtype of its configuration."""

    weights: str  # the name of a number format, as `cost --weights` takes it
    only: tuple[str, ...] = ()  # patterns of parameter names, layer numbers left open: those that have it; (): all


class ZooEntry(Record, frozen=True, kw_only=True):
    """One configuration."""

    id: str  # the name on the Hugging Face hub
    family: str
    kind: Kind
    parameters: int  # each shared weight counted once
    published_parameters: int
    published_rounding: int = 0  # how far the published figure may be off by its rounding; 0 where it is exact
    parameters_not_in_module: int = 0  # part of `parameters` that the built module has not as parameters; see the note
    note: str = ""
    quantization: Quantization | None = None
    aliases: list[str] = []  # other ids with this same configuration
    config: dict[str, object]  # the arguments of transformers' config class for config["model_type"]


@cache
def entries() -> tuple[ZooEntry, ...]:
    """All entries, sorted by family, size and id."""
    found: list[ZooEntry] = []
    for file in (Path(__file__).parent / "data").glob("*.json"):
        found.extend(msgspec.json.decode(file.read_bytes(), type=list[ZooEntry]))
    return tuple(sorted(found, key=lambda entry: (entry.family, entry.parameters, entry.id)))


def find_entry(name: str) -> ZooEntry | None:
    """Find the entry with this id, ignoring case; the organisation may be omitted where that is not ambiguous."""
    wanted = name.strip().lower()
    exact = [entry for entry in entries() if wanted in (known.lower() for known in _ids(entry))]
    short = [entry for entry in entries() if wanted in (_short(known) for known in _ids(entry))]
    found = exact or short
    return found[0] if len(found) == 1 else None


def suggest(name: str) -> list[str]:
    """Suggest ids that look like an unknown name."""
    wanted = name.strip().lower()
    ids = [known for entry in entries() for known in _ids(entry)]
    by_name = {known.lower(): known for known in ids} | {_short(known): known for known in ids}
    near = get_close_matches(wanted, by_name, n=_NEAR) + get_close_matches(wanted.rpartition("/")[2], by_name, n=_NEAR)
    return list(dict.fromkeys(by_name[match] for match in near))[:_NEAR]


def _ids(entry: ZooEntry) -> list[str]:
    return [entry.id, *entry.aliases]


def _short(known: str) -> str:
    return known.rpartition("/")[2].lower()
