"""What a database knows about ops, as text: a table of all, or a block for each way to call one."""

from collections.abc import Iterable, Sequence

from torchstone.record.config import Damage, OpSummary, SeenConfiguration, TensorFacts
from torchstone.record.config_tensors import tensors_of
from torchstone.report.config_text import config_value_text
from torchstone.report.text import Paint, aligned, plain

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
        parts.insert(0, f"and {len(members) - 1} that differ in what is listed below")
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
    return f"{len(texts)} values: {shown}" + (" | ..." if len(texts) > _MOST_VALUES else "")


def _notes(seen: SeenConfiguration) -> dict[str, str]:
    """What stands behind an argument: what its values were like, and what could not be read."""
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
    return f"  (not read: {broken.kind})"
