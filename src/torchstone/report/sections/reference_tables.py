"""Documents of a reference -> tables of its report: what the model needs in memory, which torch functions it calls."""

from pathlib import Path
from typing import TypeVar

import msgspec

from torchstone.errors import UnreadableFileError
from torchstone.record.base import Record
from torchstone.report.columns import Column, Shown, Table

_Document = TypeVar("_Document", bound=Record)


class _Need(Record, frozen=True, kw_only=True):
    dtype: str
    weights_bytes: int | None
    buffers_bytes: int | None
    activation_peak_bytes: int | None
    kv_cache_bytes: dict[int, int | None] | None
    captured: bool


class _Summary(Record, frozen=True, kw_only=True):
    memory: tuple[_Need, ...] = ()


class _Function(Record, frozen=True, kw_only=True):
    function: str
    calls: int
    modules: tuple[str, ...]


class _Operators(Record, frozen=True, kw_only=True):
    functions: tuple[_Function, ...] = ()


def document_tables(folder: Path) -> tuple[Table, ...]:
    """The tables of the documents that are there."""
    tables = []
    if (folder / "summary.json").is_file():
        tables.append(_memory(_read(folder / "summary.json", _Summary).memory))
    if (folder / "operators.json").is_file():
        tables.append(_functions(_read(folder / "operators.json", _Operators).functions))
    return tuple(tables)


def _read(path: Path, kind: type[_Document]) -> _Document:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        msg = f"{path} cannot be read ({error}); make the reference again"
        raise UnreadableFileError(msg) from error


def _memory(needs: tuple[_Need, ...]) -> Table:
    lengths = dict.fromkeys(length for need in needs for length in need.kv_cache_bytes or {})

    def sizes(name: str, title: str, values: list[int | None]) -> Column:
        return Column(name=name, title=title, values=values, shown=Shown.BYTES)

    return Table(
        name="reference.memory",
        title="Memory by element type",
        empty="Nothing is known about its memory.",
        columns=(
            Column(
                name="dtype",
                title="Type",
                values=[f"{need.dtype} (as run)" if need.captured else need.dtype for need in needs],
                shown=Shown.TEXT,
            ),
            sizes("weights", "Weights", [need.weights_bytes for need in needs]),
            sizes("buffers", "Buffers", [need.buffers_bytes for need in needs]),
            sizes("activations", "Activation peak", [need.activation_peak_bytes for need in needs]),
            *(
                sizes(f"cache_{length}", f"KV, {length:,}", [(need.kv_cache_bytes or {}).get(length) for need in needs])
                for length in lengths
            ),
        ),
    )


def _functions(found: tuple[_Function, ...]) -> Table:
    return Table(
        name="reference.functions",
        title="Torch functions, as the code calls them",
        empty="The code calls no torch function.",
        columns=(
            Column(name="function", title="Function", values=[one.function for one in found], shown=Shown.TEXT),
            Column(name="calls", title="Calls", values=[one.calls for one in found], shown=Shown.COUNT),
            Column(name="modules", title="In", values=[_places(one.modules) for one in found], shown=Shown.TEXT),
        ),
    )


def _places(modules: tuple[str, ...]) -> str:
    first, *others = modules or ("-",)
    return f"{first} and {len(others)} more" if others else first
