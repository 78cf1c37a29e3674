"""Configurations: each way an op was called, kept once; the op logs they come from; coverage of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import ClassVar, TypeVar

import msgspec

from torchstone.record.base import Count, Document, Record, Schema, Size
from torchstone.record.consistency import in_range, rows_in_range
from torchstone.record.key import config_key
from torchstone.record.op import Phase
from torchstone.record.tensor import TensorSpec
from torchstone.record.ttnn import ttnn_tensor
from torchstone.record.value import Argument, Entries, Fields, Items, Value

# Configurations: each way an op was called, kept once, with every place it was seen at. A `Configuration` is what
# makes two calls the same test, and nothing else: `config_key` names it. What was learned about it (where it was
# seen, the values of its tensors, its name in another tool, what was damaged in the file it came from) stands beside
# it in a `SeenConfiguration`. Two of those about the same configuration are joined by `merged`, in any order, any
# grouping and any number of times with the same result.


R = TypeVar("R", bound=Record)
Number = TypeVar("Number", int, float, int | float)


class Configuration(Record, frozen=True, kw_only=True):
    """One way to call an op; equal configurations, and only those, have the same `config_key`."""

    op: str  # "aten.mm.default", "ttnn.add"
    arguments: tuple[Argument, ...] = ()
    aliases: tuple[tuple[int, ...], ...] = ()  # groups of tensors on one storage, numbered as `tensors_of` does
    machine: Value = None  # the machine it is bound to, as another tool described it; None: any

    @property
    def key(self) -> str:
        """The name of this configuration, in every database."""
        return config_key(self)


class Occurrence(Record, frozen=True, kw_only=True):
    """One place a configuration was seen at; everything but the count says which place."""

    source: str  # a test, a script, a model or a file: what the trace was made from
    run: str = ""  # which trace of that source; "" where it is unknown
    model: str = ""
    phase: Phase | None = None
    module_path: str = ""
    call_site: str = ""  # "net.py:17", "line 12"
    details: Entries | None = None  # what else the file said about this place
    count: Count | None = None  # calls; None: not counted

    @property
    def place(self) -> Occurrence:
        """The same place without its count."""
        return msgspec.structs.replace(self, count=None)


class TensorFacts(Record, frozen=True, kw_only=True):
    """What the values of one tensor were like, over all calls that were looked at; None: not looked at."""

    tensor: int  # its number, as `tensors_of` numbers the tensors of a configuration
    lowest: int | float | None = None  # of the finite values
    highest: int | float | None = None
    has_nan: bool | None = None
    has_inf: bool | None = None
    fewest_zeros: float | None = None  # share of the elements, 0 to 1
    most_zeros: float | None = None
    values: tuple[int | float | bool, ...] | None = None  # one whole example, row by row, of a small tensor


class ForeignName(Record, frozen=True, kw_only=True):
    """What another tool calls a configuration."""

    format: str  # "ttnn_master_v2"
    hash: str = ""
    rule: str = ""  # the rule that makes the hash again; "": none of the known ones does
    op: str = ""  # the op as that tool spells it
    details: Entries | None = None  # other fields of its entry: an id, a status


class Damage(Record, frozen=True, kw_only=True):
    """A field of a file that could not be read as it stood; the text is kept."""

    where: str  # "arg0"
    kind: str  # what was wrong with it, in a few words
    text: str
    repaired: bool = False  # True: the argument holds what the text says


class SeenConfiguration(Record, frozen=True, kw_only=True):
    """A configuration and all that is known about it."""

    configuration: Configuration
    occurrences: tuple[Occurrence, ...] = ()
    facts: tuple[TensorFacts, ...] = ()
    foreign: tuple[ForeignName, ...] = ()
    damage: tuple[Damage, ...] = ()
    refused: str = ""  # the error with which the op refused every call that was recorded; "": it ran, or is not known

    @property
    def key(self) -> str:
        """The name of the configuration."""
        return self.configuration.key

    @property
    def calls(self) -> int:
        """All calls that were counted."""
        return sum(one.count for one in self.occurrences if one.count is not None)


class TraceFormat(StrEnum):
    """What a trace run was read from."""

    TORCHSTONE = "torchstone"
    ATEN_TEXT = "aten_text"
    TTNN_MASTER_V0 = "ttnn_master_v0"
    TTNN_MASTER_V1 = "ttnn_master_v1"
    TTNN_MASTER_V1_5 = "ttnn_master_v1.5"
    TTNN_MASTER_V2 = "ttnn_master_v2"
    TTNN_MASTER_V2_DB = "ttnn_master_v2_db"
    TTNN_GRAPH = "ttnn_graph"
    TTNN_OPERATION_TRACE = "ttnn_operation_trace"
    TTNN_GRAPH_REPORT = "ttnn_graph_report"


class TraceRun(Record, frozen=True, kw_only=True):
    """One trace, or one file that was read: what its occurrences have in common."""

    source: str
    run: str
    format: TraceFormat = TraceFormat.TORCHSTONE
    details: Entries | None = None  # what the file said about itself
    kept_lines: tuple[tuple[int, str], ...] = ()  # lines that hold no configuration, by number


class OpSummary(Record, frozen=True, kw_only=True):
    """One op of the database."""

    op: str
    configurations: Count
    calls: Count
    uncounted: Count  # places without a count of calls
    models: tuple[str, ...]


class StoreInfo(Record, frozen=True, kw_only=True):
    """What a database holds."""

    configurations: Count
    operations: Count
    sources: int
    calls: Count
    uncounted: Count  # places without a count of calls
    runs: int
    chains: Count = 0  # of calls that feed each other: counted apart from the configurations and calls of single ops


def merged(one: SeenConfiguration, other: SeenConfiguration) -> SeenConfiguration:
    """All that two records know about the same configuration."""
    if _text_of(one.configuration) != _text_of(other.configuration):
        msg = f"two configurations of {one.configuration.op} and {other.configuration.op} are not the same"
        raise ValueError(msg)
    return in_order(
        SeenConfiguration(
            configuration=one.configuration,
            occurrences=one.occurrences + other.occurrences,
            facts=one.facts + other.facts,
            foreign=one.foreign + other.foreign,
            damage=one.damage + other.damage,
            refused=min(one.refused, other.refused) if one.refused and other.refused else "",
        )
    )


def in_order(seen: SeenConfiguration) -> SeenConfiguration:
    """The same knowledge in the one order that all databases use, and nothing twice."""
    if len(seen.occurrences) <= 1 and not (seen.facts or seen.foreign or seen.damage):
        return seen  # what most traces hand over, a million times
    facts: dict[int, TensorFacts] = {}
    for fact in seen.facts:
        facts[fact.tensor] = _both_facts(facts[fact.tensor], fact) if fact.tensor in facts else fact
    return SeenConfiguration(
        configuration=seen.configuration,
        occurrences=counted_once(seen.occurrences),
        facts=tuple(facts[tensor] for tensor in sorted(facts)),
        foreign=_each_once(seen.foreign),
        damage=_each_once(seen.damage),
        refused=seen.refused,
    )


def counted_once(occurrences: Sequence[Occurrence]) -> tuple[Occurrence, ...]:
    """Each place once: a place that appears twice was counted by one run, and the larger count is complete."""
    if len(occurrences) <= 1:
        return tuple(occurrences)
    counted: dict[bytes, Occurrence] = {}
    for one in occurrences:
        place = _text_of(one.place)
        known = counted.get(place)
        if known is None or _largest(known.count, one.count) != known.count:
            counted[place] = one
    return tuple(counted[place] for place in sorted(counted))


def _each_once(records: Iterable[R]) -> tuple[R, ...]:
    texts = {_text_of(record): record for record in records}  # by text: 1, 1.0 and True are equal but not the same
    return tuple(texts[text] for text in sorted(texts))


def _both_facts(one: TensorFacts, other: TensorFacts) -> TensorFacts:
    examples = [fact.values for fact in (one, other) if fact.values is not None]
    return TensorFacts(
        tensor=one.tensor,
        lowest=_smallest(one.lowest, other.lowest),
        highest=_largest(one.highest, other.highest),
        has_nan=_either(one.has_nan, other.has_nan),
        has_inf=_either(one.has_inf, other.has_inf),
        fewest_zeros=_smallest(one.fewest_zeros, other.fewest_zeros),
        most_zeros=_largest(one.most_zeros, other.most_zeros),
        values=min(examples, key=repr, default=None),  # any rule will do that does not ask who came first
    )


def _smallest(one: Number | None, other: Number | None) -> Number | None:
    return min((value for value in (one, other) if value is not None), key=_rank, default=None)


def _largest(one: Number | None, other: Number | None) -> Number | None:
    return max((value for value in (one, other) if value is not None), key=_rank, default=None)


def _rank(number: float) -> tuple[float, str]:
    return number, repr(number)  # 0.0 and -0.0, 1 and 1.0 are equal but not the same


def _either(one: bool | None, other: bool | None) -> bool | None:  # noqa: FBT001 - two facts, not switches
    known = [value for value in (one, other) if value is not None]
    return any(known) if known else None


def _text_of(record: Record) -> bytes:
    return msgspec.json.encode(record)


# --- Tensors of a configuration, whichever tool wrote it: dtype and shape ---


class ConfigTensor(Record, frozen=True, kw_only=True):
    """A tensor among the arguments of a configuration."""

    argument: str
    dtype: str  # "float32", "BFLOAT8_B": as the op's own tool names it
    shape: tuple[Size, ...] | None  # None: the file does not say


def tensors_of(configuration: Configuration) -> tuple[ConfigTensor, ...]:
    """The tensors among the arguments, in order: facts and aliases number them like this."""
    return tuple(
        ConfigTensor(argument=argument.name, dtype=dtype, shape=shape)
        for argument in configuration.arguments
        for dtype, shape in _tensors(argument.value)
    )


def _tensors(value: Value) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    match value:
        case TensorSpec(dtype=dtype, shape=shape):
            yield dtype, shape
        case Items(items=items):
            for item in items:
                yield from _tensors(item)
        case Entries(entries=entries):
            foreign = ttnn_tensor(value)
            if foreign is not None:
                yield foreign.dtype, foreign.shape
            else:
                for _, item in entries:
                    yield from _tensors(item)
        case Fields(fields=fields):
            foreign = ttnn_tensor(value)
            if foreign is not None:
                yield foreign.dtype, foreign.shape
            else:
                for _, item in fields:
                    yield from _tensors(item)
        case _:
            return


def check_numbers(configuration: Configuration, facts: Sequence[TensorFacts]) -> None:
    """Raise ValueError where aliases or facts are about a tensor that the arguments do not have."""
    if configuration.aliases or facts:
        tensors = len(tensors_of(configuration))
        rows_in_range(f"aliases of {configuration.op}", configuration.aliases, tensors)
        in_range(f"facts of {configuration.op}", [fact.tensor for fact in facts], tensors)


# --- Op logs: the calls that one `torchstone trace` recorded, before any database ---


class TargetKind(StrEnum):
    """What was traced."""

    PYTEST = "pytest"
    SCRIPT = "script"
    MODEL = "model"


class SourceEnding(StrEnum):
    """How a test, script or model ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class TracedPeak(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The highest use of one memory of a device while a source ran."""

    memory: str  # DRAM, L1, L1_WITH_CIRCULAR_BUFFERS, ...
    bank_bytes: Count
    capacity_bytes: Count | None = None  # of one bank
    operation: str = ""
    call_site: str = ""


class TracedSource(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One test, script or model."""

    name: str  # a pytest node, a script with its arguments, a model
    ending: SourceEnding
    detail: str = ""  # what it raised, in one line
    calls: Count = 0
    configurations: tuple[SeenConfiguration, ...] = ()
    chains: tuple[SeenConfiguration, ...] = ()  # of calls that feed each other; empty where they were not recorded
    peaks: tuple[TracedPeak, ...] = ()  # of the device; empty where its memory was not captured


class OpLog(Document, frozen=True, kw_only=True, omit_defaults=False):
    """One run of `torchstone trace`."""

    schema: ClassVar[Schema] = Schema(kind="op_log", version=1)
    target: str  # as the user named it
    kind: TargetKind
    run: str  # tells this trace from all others
    created: str  # UTC, ISO 8601
    command: str = ""
    versions: dict[str, str] = {}  # with ttnn's where its calls were recorded, too
    sources: tuple[TracedSource, ...] = ()
    roles: dict[str, str] = {}  # op -> compute, view, factory, random, unknown; ttnn for ttnn's, which have no schema
    notes: tuple[str, ...] = ()

    def check(self) -> None:
        """Aliases and facts are about tensors that the arguments have."""
        for source in self.sources:
            for seen in (*source.configurations, *source.chains):
                check_numbers(seen.configuration, seen.facts)

    def kept(self, *, keep_failing: bool) -> tuple[TracedSource, ...]:
        """The sources whose calls count: those that passed, or all that ran."""
        wanted = {SourceEnding.PASSED, SourceEnding.FAILED} if keep_failing else {SourceEnding.PASSED}
        return tuple(source for source in self.sources if source.ending in wanted)


# --- Coverage: the share of a model's calls whose tests pass on a backend ---


class OpCoverage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One op of a model. What neither passed nor failed was not tested."""

    op: str
    configurations: Count
    passed: int
    failed: int
    calls: Count  # that were counted
    passed_calls: Count
    failed_calls: Count
    models: int = 0  # that call it
    untested_models: int = 0  # that call it in a configuration which was not tested


class ModelCoverage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A model on a backend, or all models."""

    models: tuple[str, ...]
    backend: str
    ops: tuple[OpCoverage, ...]  # the one with most calls that do not pass first
    uncounted: Count  # places without a count of calls: not part of the shares of calls

    @property
    def calls(self) -> int:
        """The calls that were counted."""
        return sum(op.calls for op in self.ops)

    @property
    def passed_calls(self) -> int:
        """Calls of configurations that pass."""
        return sum(op.passed_calls for op in self.ops)

    @property
    def failed_calls(self) -> int:
        """Calls of configurations that fail."""
        return sum(op.failed_calls for op in self.ops)

    @property
    def configurations(self) -> int:
        """The configurations of the model."""
        return sum(op.configurations for op in self.ops)

    @property
    def passed(self) -> int:
        """Configurations that pass."""
        return sum(op.passed for op in self.ops)

    @property
    def share(self) -> float | None:
        """The share of calls that is covered; None where no call was counted."""
        return self.passed_calls / self.calls if self.calls else None


class KeptCoverage(Record, frozen=True, kw_only=True):
    """The coverage of a model as it is kept until the database changes."""

    coverage: ModelCoverage
    has_results: bool  # whether a sweep ran on the backend
