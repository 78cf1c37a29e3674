"""Records <-> rows: what stands in the columns, and the digests that find origins and places again."""

from hashlib import sha256
from typing import Any

import msgspec

from torchstone.record.base import Record
from torchstone.record.config import (
    Configuration,
    Damage,
    ForeignName,
    Occurrence,
    SeenConfiguration,
    TensorFacts,
    TraceRun,
)
from torchstone.record.config_tensors import tensors_of
from torchstone.record.op import Phase
from torchstone.record.value import Entries

Row = dict[str, Any]

_encoder = msgspec.json.Encoder()
_configuration_decoder = msgspec.json.Decoder(Configuration)
_run_decoder = msgspec.json.Decoder(TraceRun)
_details_decoder = msgspec.json.Decoder(Entries)


class Knowledge(Record, frozen=True, kw_only=True):
    """What is known about a configuration apart from where it was seen."""

    facts: tuple[TensorFacts, ...] = ()
    foreign: tuple[ForeignName, ...] = ()
    damage: tuple[Damage, ...] = ()


_knowledge_decoder = msgspec.json.Decoder(Knowledge)


def configuration_row(seen: SeenConfiguration, *, key: str, number: int) -> Row:
    """The row of a configuration that the database does not have yet."""
    tensors = tensors_of(seen.configuration)
    return {
        "id": number,
        "key": key,
        "op": seen.configuration.op,
        "dtypes": listed({tensor.dtype for tensor in tensors}),
        "ranks": listed({str(len(tensor.shape)) for tensor in tensors if tensor.shape is not None}),
        "body": _encoder.encode(seen.configuration).decode(),
        "knowledge": knowledge_text(seen),
    }


def listed(words: set[str]) -> str:
    """Words as one text in which LIKE '%,word,%' finds each."""
    return f",{','.join(sorted(words))}," if words else ""


def knowledge_text(seen: SeenConfiguration) -> str | None:
    """What is known beside the occurrences, as JSON; None where there is nothing."""
    if not (seen.facts or seen.foreign or seen.damage):
        return None
    known = Knowledge(facts=seen.facts, foreign=seen.foreign, damage=seen.damage)
    return _encoder.encode(known).decode()


def seen_of(body: str, knowledge: str | None, occurrences: tuple[Occurrence, ...] = ()) -> SeenConfiguration:
    """The record of a row."""
    known = _knowledge_decoder.decode(knowledge) if knowledge is not None else Knowledge()
    return SeenConfiguration(
        configuration=_configuration_decoder.decode(body),
        occurrences=occurrences,
        facts=known.facts,
        foreign=known.foreign,
        damage=known.damage,
    )


def origin_of(one: Occurrence) -> tuple[str, str, str]:
    """What tells origins apart."""
    return one.source, one.run, one.model


def place_of(one: Occurrence) -> tuple[str | None, str, str, bytes]:
    """What tells places apart."""
    details = (
        b"" if one.details is None else _encoder.encode(one.details)
    )  # as text: 1 and True are equal, not the same
    return one.phase, one.module_path, one.call_site, details


def origin_row(one: Occurrence) -> Row:
    """Source, run and model of an occurrence."""
    columns = {"source": one.source, "run": one.run, "model": one.model}
    return {"digest": _digest(one.source, one.run, one.model), **columns}


def place_row(one: Occurrence) -> Row:
    """Where in its source an occurrence was seen."""
    details = None if one.details is None else _encoder.encode(one.details).decode()
    phase = None if one.phase is None else one.phase.value
    columns = {"phase": phase, "module_path": one.module_path, "call_site": one.call_site, "details": details}
    return {"digest": _digest(phase, one.module_path, one.call_site, details), **columns}


def occurrence_of(row: Any) -> Occurrence:
    """The record of a joined row."""
    return Occurrence(
        source=row.source,
        run=row.run,
        model=row.model,
        phase=None if row.phase is None else Phase(row.phase),
        module_path=row.module_path,
        call_site=row.call_site,
        details=None if row.details is None else _details_decoder.decode(row.details),
        count=row.calls,
    )


def run_row(run: TraceRun) -> Row:
    """The row of a trace run."""
    digest = _digest(run.source, run.run)
    return {"digest": digest, "source": run.source, "run": run.run, "body": _encoder.encode(run).decode()}


def run_of(body: str) -> TraceRun:
    """The trace run of a row."""
    return _run_decoder.decode(body)


def _digest(*parts: str | None) -> str:
    return sha256(_encoder.encode(parts)).hexdigest()
