"""Configurations -> ttnn master JSON or a pytest file; and whether foreign hashes still match."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchstone.configs.exchange import Exported, JsonObject
from torchstone.configs.ttnn_master import RULES, verified_rule
from torchstone.foreign import acts_outside
from torchstone.record.base import Record
from torchstone.record.config import Configuration, ForeignName, Occurrence, SeenConfiguration, TensorFacts, TraceFormat
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Items, Value, entry, json_from_value

# --- ttnn master JSON of the second layout; a configuration from such a file keeps its hash ---


_SAME_LAYOUT = (TraceFormat.TTNN_MASTER_V2, TraceFormat.TTNN_MASTER_V2_DB)


def write_master(seen: Iterable[SeenConfiguration]) -> Exported:
    """A master file of the configurations that came from one; its readers do not know the arguments of others."""
    operations: dict[str, list[JsonObject]] = {}
    left_out: dict[str, int] = {}
    models: set[str] = set()
    for one in seen:
        name = _name(one)
        if name is None:
            kind = one.foreign[0].format if one.foreign else f"{one.configuration.op.partition('.')[0]} ops"
            left_out[kind] = left_out.get(kind, 0) + 1
            continue
        models.update(place.source for place in one.occurrences)
        operations.setdefault(name.op or one.configuration.op, []).append(_entry(one, name))
    ordered = {op: {"configurations": sorted(operations[op], key=_order)} for op in sorted(operations)}
    total = sum(map(len, operations.values()))
    metadata = {
        "models": sorted(models),
        "unique_operations": len(operations),
        "total_configurations": total,
        "operations_summary": {op: len(operations[op]) for op in sorted(operations)},
    }
    text = json.dumps({"metadata": metadata, "operations": ordered}, indent=1) + "\n"
    return Exported(text=text, configurations=total, left_out=left_out)


def _name(one: SeenConfiguration) -> ForeignName | None:
    """The name of the entry; one whose hash was verified is preferred."""
    names = [name for name in one.foreign if name.format in _SAME_LAYOUT and name.hash]
    return min(names, key=lambda name: (not name.rule, name.hash), default=None)


def _entry(one: SeenConfiguration, name: ForeignName) -> JsonObject:
    return {
        **_details(name.details),
        "config_hash": name.hash,
        "arguments": arguments_json(one.configuration),
        "executions": [_execution(place) for place in one.occurrences],
    }


def arguments_json(configuration: Configuration) -> JsonObject:
    """The arguments as they were in the file."""
    return {argument.name: json_from_value(argument.value) for argument in configuration.arguments}


def _execution(place: Occurrence) -> JsonObject:
    counted = {} if place.count is None else {"count": place.count}
    return {"source": place.source, **_details(place.details), **counted}


def _details(details: Entries | None) -> JsonObject:
    return {} if details is None else dict(json_from_value(details))


def _order(configuration: JsonObject) -> tuple[bool, int, str]:
    number = configuration.get("config_id")
    return not isinstance(number, int), number if isinstance(number, int) else 0, configuration["config_hash"]


def machine_json(one: SeenConfiguration) -> JsonObject:
    """The machine that went into the hash of a configuration: that of the first place that names a board."""
    for place in one.occurrences:
        machine = entry(place.details, "machine_info")
        if entry(machine, "board_type"):
            return dict(json_from_value(machine))
    return dict(json_from_value(one.configuration.machine)) if one.configuration.machine is not None else {}


# --- A pytest file of aten ops that needs only torch ---


_TEMPLATE = Path(__file__).parent / "pytest_file.txt"
_KEY_CHARACTERS = 15  # of a key in a test name: "k1-" and twelve digits


class _UnwritableError(ValueError):
    """A value that a test file cannot express."""


def write_pytest(seen: Iterable[SeenConfiguration]) -> Exported:
    """A test for each configuration of an aten op: the device must return what the CPU returns."""
    lines: list[str] = []
    left_out: dict[str, int] = {}
    for one in seen:
        try:
            lines.append(_parameter(one))
        except _UnwritableError as reason:
            left_out[str(reason)] = left_out.get(str(reason), 0) + 1
    body = "\n".join(lines)
    text = _TEMPLATE.read_text(encoding="utf-8").replace("    # CALLS", body)
    return Exported(text=text, configurations=len(lines), left_out=left_out)


def _parameter(one: SeenConfiguration) -> str:
    configuration = one.configuration
    if not configuration.op.startswith("aten."):
        msg = "configurations of ops outside aten"
        raise _UnwritableError(msg)
    if acts_outside(configuration.op):
        msg = "configurations of ops that open files or print"
        raise _UnwritableError(msg)
    if configuration.aliases:
        msg = "configurations whose tensors share memory"
        raise _UnwritableError(msg)
    writer = _Writer(one.facts)
    positional = [writer.text(argument.value) for argument in configuration.arguments if argument.position is not None]
    named = [
        f"{argument.name!r}: {writer.text(argument.value)}"
        for argument in configuration.arguments
        if argument.position is None
    ]
    call = f"{configuration.op!r}, [{', '.join(positional)}], {{{', '.join(named)}}}"
    return f"    pytest.param({call}, id={_test_name(configuration)!r}),"


def _test_name(configuration: Configuration) -> str:
    return f"{configuration.op}-{configuration.key[:_KEY_CHARACTERS]}"


def _of_torch(name: str) -> str:
    """A constant of torch; its name comes from a file of others, and must not bring code of its own."""
    if not name.isidentifier():
        msg = "configurations with an element type, layout or memory format that is not a name"
        raise _UnwritableError(msg)
    return f"torch.{name}"


class _Writer:
    """Writes values as Python; tensors are counted, so that each finds the facts about it."""

    def __init__(self, facts: tuple[TensorFacts, ...]) -> None:
        self._facts = {fact.tensor: fact for fact in facts}
        self._tensors = 0

    def text(self, value: Value) -> str:
        match value:
            case TensorSpec():
                return self._tensor(value)
            case Items(kind="list" | "tuple" as kind, items=items):
                inner = ", ".join(map(self.text, items))
                return f"[{inner}]" if kind == "list" else f"({inner},)" if len(items) == 1 else f"({inner})"
            case Entries(entries=entries):
                return "{" + ", ".join(f"{self.text(key)}: {self.text(item)}" for key, item in entries) + "}"
            case Atom(kind="dtype" | "layout" | "memory_format", text=text):
                return _of_torch(text)
            case Atom(kind="device"):
                return "DEVICE"
            case Atom(kind="float", text=text):
                return f"float({text!r})"
            case None | bool() | int() | float() | str():
                return repr(value)
            case _:
                msg = f"configurations with a value that Python code cannot express ({type(value).__name__})"
                raise _UnwritableError(msg)

    def _tensor(self, spec: TensorSpec) -> str:
        fact = self._facts.get(self._tensors)
        self._tensors += 1
        if spec.layout != "strided" or spec.stride is None or spec.subclass:
            msg = "configurations with a tensor that is not strided"
            raise _UnwritableError(msg)
        parts = [str(spec.shape), _of_torch(spec.dtype), str(spec.stride)]
        if spec.storage_offset:
            parts.append(f"offset={spec.storage_offset}")
        if fact is not None and fact.lowest is not None and fact.highest is not None:
            parts += [f"low={fact.lowest!r}", f"high={fact.highest!r}"]
        if fact is not None and fact.values is not None:
            parts.append(f"values={fact.values!r}")
        return f"Spec({', '.join(parts)})"


# --- Foreign hashes: does a known rule still compute them from the stored configuration? ---


class HashCheck(Record, frozen=True, kw_only=True):
    """One foreign hash."""

    key: str
    op: str
    hash: str
    rule: str  # the rule that computes it; "" if none does


def check_hashes(seen: Iterable[SeenConfiguration]) -> Iterator[HashCheck]:
    """Compute every foreign hash again."""
    for one in seen:
        for name in one.foreign:
            if name.hash:
                op = name.op or one.configuration.op
                rule = verified_rule(name.hash, op, arguments_json(one.configuration), machine_json(one), RULES)
                yield HashCheck(key=one.key, op=op, hash=name.hash, rule=rule.name if rule else "")
