"""Ops and configurations as text: a table of all, a block per configuration, and the coverage of a model."""

from collections.abc import Iterable, Sequence

from torchstone.record.config import Damage, ModelCoverage, OpSummary, SeenConfiguration, TensorFacts, tensors_of
from torchstone.record.tensor import TensorSpec, contiguous_strides
from torchstone.record.ttnn import TtnnMemory, TtnnShard, TtnnTensor, sizes_of, ttnn_memory, ttnn_tensor
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value, entry
from torchstone.report.text import Paint, aligned, plain
from torchstone.units import many

# --- Values of a configuration in one line, as kernel authors read them ---


_PLAIN_LAYOUT = "TILE"  # what almost every ttnn tensor on a device has
_UNKNOWN = "?"


def config_value_text(value: Value) -> str:
    """One value; a tensor of any tool as `Tensor(shape=..., dtype=...)`."""
    foreign = ttnn_tensor(value)
    if foreign is not None:
        return _ttnn_tensor_text(foreign)
    memory = ttnn_memory(value)
    if memory is not None:
        return f"MemoryConfig({_memory_text(memory)})"
    match value:
        case TensorSpec():
            return _tensor_text(value)
        case Items(kind="tuple", items=items):
            return f"({', '.join(map(config_value_text, items))})"
        case Items(items=items):
            return f"[{', '.join(map(config_value_text, items))}]"
        case Entries():
            return _entries_text(value)
        case Fields(class_name=name, fields=fields):
            return f"{name}({_parts(fields)})"
        case Atom(text=text) | Opaque(text=text):
            return text
        case str():
            return value
        case _:
            return repr(value)


def _parts(parts: Iterable[tuple[Value, Value]] | Iterable[tuple[str, Value]]) -> str:
    return ", ".join(f"{name}={config_value_text(part)}" for name, part in parts)


def _entries_text(value: Entries) -> str:
    """An object of a JSON file: by its type where it names one, else by its keys."""
    kind = entry(value, "type")
    for name in ("repr", "value"):
        text = entry(value, name)
        if kind is not None and isinstance(text, str):
            return text
    if kind == "Shape" or (len(value.entries) == 1 and value.entries[0][0] == "Shape"):
        return f"Shape({_sizes(sizes_of(value.entries[0][1]))})"
    if isinstance(kind, str):
        return f"{kind}({_parts(part for part in value.entries if part[0] != 'type')})"
    if len(value.entries) == 1 and isinstance(value.entries[0][1], Entries):
        ((only, inner),) = value.entries
        return f"{only}({_parts(inner.entries) if isinstance(inner, Entries) else ''})"
    return f"{{{_parts(value.entries)}}}"


def _tensor_text(spec: TensorSpec) -> str:
    parts = [f"shape={_sizes(spec.shape)}", f"dtype={spec.dtype}"]
    if spec.stride is not None and spec.stride != contiguous_strides(spec.shape):
        parts.append(f"stride={_sizes(spec.stride)}")
    if spec.storage_offset:
        parts.append(f"offset={spec.storage_offset}")
    if spec.layout != "strided":
        parts.append(f"layout={spec.layout}")
    if spec.device not in ("", "cpu"):
        parts.append(f"device={spec.device}")
    if spec.requires_grad:
        parts.append("requires_grad=True")
    if spec.subclass:
        parts.append(f"class={spec.subclass}")
    return f"Tensor({', '.join(parts)})"


def _ttnn_tensor_text(tensor: TtnnTensor) -> str:
    parts = [f"shape={_sizes(tensor.shape)}", f"dtype={tensor.dtype or _UNKNOWN}"]
    if tensor.layout != _PLAIN_LAYOUT:
        parts.append(f"layout={tensor.layout or _UNKNOWN}")
    if tensor.storage not in ("", "DEVICE"):
        parts.append(f"storage={tensor.storage}")
    if tensor.memory is not None:
        parts.append(_memory_text(tensor.memory))
    if tensor.placement:
        parts.append(f"placement={tensor.placement}")
    return f"Tensor({', '.join(parts)})"


def _memory_text(memory: TtnnMemory) -> str:
    name = "_".join(part for part in (memory.buffer, memory.layout) if part)
    shard = f", {_shard_text(memory.shard)}" if memory.shard is not None else ""
    unread = f", shard({memory.shard_text})" if memory.shard_text else ""
    return f"memory={name}{shard}{unread}"


def _shard_text(shard: TtnnShard) -> str:
    grid = ", ".join(f"({first[0]},{first[1]})->({last[0]},{last[1]})" for first, last in shard.grid)
    return f"shard(shard_shape={_sizes(shard.shape)}, grid=[{grid}], orientation={shard.orientation})"


def _sizes(sizes: Sequence[int] | None) -> str:
    return _UNKNOWN if sizes is None else f"[{', '.join(map(str, sizes))}]"


# --- Ops of a database: a table of all, or a block per configuration ---


_KEY_LETTERS = 15
_MOST_MODELS = 2
_MOST_VALUES = 8


def operations_text(operations: Sequence[OpSummary], *, paint: Paint = plain) -> str:
    """One row for each op, the most called first."""
    rows = [("op", "configurations", "calls", "models")]
    for one in sorted(operations, key=lambda one: (-one.calls, -one.configurations, one.op)):
        calls = str(one.calls) if one.calls or not one.uncounted else "not counted"
        rows.append((one.op, str(one.configurations), calls, _models_text(one.models)))
    return aligned(rows, right=(1, 2), paint=paint)


def _models_text(models: Sequence[str]) -> str:
    shown = ", ".join(models[:_MOST_MODELS])
    return f"{shown} and {len(models) - _MOST_MODELS} more" if len(models) > _MOST_MODELS else shown


def family_text(members: Sequence[SeenConfiguration], *, paint: Paint = plain) -> str:
    """Near duplicates as one block: the first of them, and the values in which the others differ."""
    first = members[0]
    lines = [_head(members, paint=paint)]
    notes = _notes(first)
    for argument in first.configuration.arguments:
        texts = _distinct(_argument_text(member, argument.name) for member in members)
        shown = texts[0] if len(texts) == 1 else _several(texts)
        lines.append(f"  {paint(argument.name, 'dim')}: {shown}{notes.get(argument.name, '')}")
    for group in first.configuration.aliases:
        names = [tensors_of(first.configuration)[number].argument for number in group]
        lines.append(f"  {paint('same memory', 'dim')}: {', '.join(names)}")
    return "\n".join(lines)


def _head(members: Sequence[SeenConfiguration], *, paint: Paint) -> str:
    first = members[0]
    calls = sum(member.calls for member in members)
    counted = f"{calls} call{'' if calls == 1 else 's'}" if calls else "calls not counted"
    models = sorted({place.model for member in members for place in member.occurrences if place.model})
    parts = [counted, _models_text(models)]
    if len(members) > 1:
        parts.insert(0, f"and {len(members) - 1} that differ only in the values listed below")
    return f"{paint(first.key[:_KEY_LETTERS], 'bold')}  {first.configuration.op}  {', '.join(filter(None, parts))}"


def _argument_text(member: SeenConfiguration, name: str) -> str:
    return next((config_value_text(one.value) for one in member.configuration.arguments if one.name == name), "-")


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(texts), key=_natural)


def _natural(text: str) -> tuple[bool, float, str]:
    """Numbers by value, then everything else by text."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def _several(texts: Sequence[str]) -> str:
    shown = " | ".join(texts[:_MOST_VALUES])
    return f"{many(len(texts), 'value')}: {shown}" + (" | ..." if len(texts) > _MOST_VALUES else "")


def _notes(seen: SeenConfiguration) -> dict[str, str]:
    """Notes on each argument: the range of its values, and what could not be read."""
    notes: dict[str, str] = {}
    tensors = tensors_of(seen.configuration)
    for fact in seen.facts:
        if fact.tensor < len(tensors):
            name = tensors[fact.tensor].argument
            notes[name] = notes.get(name, "") + _fact_text(fact)
    for broken in seen.damage:
        if not broken.repaired:
            notes[broken.where] = notes.get(broken.where, "") + _damage_text(broken)
    return notes


def _fact_text(fact: TensorFacts) -> str:
    parts = []
    if fact.lowest is not None and fact.highest is not None:
        parts.append(f"values {_short(fact.lowest)} to {_short(fact.highest)}")
    if fact.has_nan:
        parts.append("with NaN")
    if fact.has_inf:
        parts.append("with Inf")
    return f"  ({', '.join(parts)})" if parts else ""


def _short(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"


def _damage_text(broken: Damage) -> str:
    return f"  (unread: {broken.kind})"


# --- Coverage of a model ---


def coverage_text(coverage: ModelCoverage, *, top: int, paint: Paint = plain) -> str:
    """The share first, then the ops with the most uncovered calls."""
    lines = [_headline(coverage)]
    if coverage.uncounted:
        lines.append(f"not part of this share: {many(coverage.uncounted, 'place')} without a count of calls")
    lines.append(
        f"{coverage.passed} of "
        f"{many(coverage.configurations, 'configuration')} pass; "
        f"{many(coverage.failed_calls, 'call fails', 'calls fail')}, "
        f"{coverage.calls - coverage.passed_calls - coverage.failed_calls} were not tested"
    )
    rows = [("op", "calls", "pass", "fail", "not tested", "covered")]
    for op in coverage.ops[:top]:
        untested = op.calls - op.passed_calls - op.failed_calls
        share = _percent(op.passed_calls, op.calls)
        rows.append((op.op, str(op.calls), str(op.passed_calls), str(op.failed_calls), str(untested), share))
    return "\n".join([*lines, "", aligned(rows, right=(1, 2, 3, 4, 5), paint=paint)])


def untested_text(coverage: ModelCoverage, *, top: int, paint: Paint = plain) -> str:
    """The ops that no vector tested in some configuration, those of the most models first."""
    share = _percent(coverage.passed_calls, coverage.calls)
    head = (
        f"{many(len(coverage.models), 'model')} on {coverage.backend}: {share} of "
        f"{many(coverage.calls, 'call')} covered"
    )
    ops = sorted(
        (op for op in coverage.ops if op.untested_models),
        key=lambda op: (-op.untested_models, op.passed_calls - op.calls),
    )
    if not ops:
        return f"{head}; every configuration was tested"
    rows = [("not tested", "used by models", "configurations", "calls")]
    for op in ops[:top]:
        configurations = op.configurations - op.passed - op.failed
        calls = op.calls - op.passed_calls - op.failed_calls
        rows.append((op.op, str(op.untested_models), str(configurations), str(calls)))
    hidden = [f"{many(len(ops) - top, 'more op')} (--top)"] if len(ops) > top else []
    return "\n".join([head, "", aligned(rows, right=(1, 2, 3), paint=paint), *hidden])


def _headline(coverage: ModelCoverage) -> str:
    names = ", ".join(coverage.models)
    if not coverage.calls:
        return f"{names} on {coverage.backend}: no calls were counted, so the share is unknown"
    share = _percent(coverage.passed_calls, coverage.calls)
    calls = f"{coverage.passed_calls} of {many(coverage.calls, 'call')}"
    return f"{names} on {coverage.backend}: {share} covered, {calls} are of configurations that pass"


def _percent(part: int, whole: int) -> str:
    """A share that says 100 % only where nothing is missing, and 0 % only where there is nothing."""
    if not whole:
        return "-"
    if part in (0, whole):
        return f"{100 * part // whole} %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"
