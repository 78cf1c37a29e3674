"""The reference: golden data, checklist, memory needs, torch functions."""

from pathlib import Path
from typing import TypeVar

import msgspec

from torchstone.errors import UnreadableFileError
from torchstone.record import codec
from torchstone.record.base import Record
from torchstone.record.files import read_file, shortened
from torchstone.record.reference import (
    CHECKLIST_FILE,
    Check,
    Checklist,
    Determinism,
    GoldenData,
    Role,
    Weights,
    WeightsKind,
)
from torchstone.report.section import Banner, Card, Column, ReportFolder, SectionView, Shown, Table, Tone
from torchstone.units import many

# --- Tables from the documents of a reference: memory needs, torch functions ---


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
        return msgspec.json.decode(read_file(path), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{path} cannot be read ({shortened(error)}); run `torchstone reference` again"
        raise UnreadableFileError(msg) from error


def _memory(needs: tuple[_Need, ...]) -> Table:
    lengths = dict.fromkeys(length for need in needs for length in need.kv_cache_bytes or {})

    def sizes(name: str, title: str, values: list[int | None]) -> Column:
        return Column(name=name, title=title, values=values, shown=Shown.BYTES)

    return Table(
        name="reference.memory",
        title="Memory by dtype",
        empty="Memory use is unknown.",
        columns=(
            Column(
                name="dtype",
                title="Dtype",
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
        title="Torch functions called by the model code",
        empty="The model code calls no torch function.",
        columns=(
            Column(name="function", title="Function", values=[one.function for one in found], shown=Shown.TEXT),
            Column(name="calls", title="Calls", values=[one.calls for one in found], shown=Shown.COUNT),
            Column(name="modules", title="In", values=[_places(one.modules) for one in found], shown=Shown.TEXT),
        ),
    )


def _places(modules: tuple[str, ...]) -> str:
    first, *others = modules or ("-",)
    return f"{first} and {len(others)} more" if others else first


# --- The section: determinism, checklist, memory needs, torch functions ---


NAME = "reference"
FILES = ("golden_data.json", CHECKLIST_FILE)
_WORDS = {
    Determinism.EQUAL: ("bit-identical", Tone.GOOD),
    Determinism.SEEDED: ("only with the same seed", Tone.WARNING),
    Determinism.DIFFERS: ("not reproducible", Tone.BAD),
}
_VALUES = {
    WeightsKind.RANDOM: "random",
    WeightsKind.PRETRAINED: "pretrained",
    WeightsKind.PARTLY_RANDOM: "partly random",
    WeightsKind.CODE: "set by code",
    WeightsKind.FILE: "from a file",
    WeightsKind.MEMORY: "as given",
}
_TONES = {
    WeightsKind.RANDOM: Tone.WARNING,
    WeightsKind.PRETRAINED: Tone.GOOD,
    WeightsKind.PARTLY_RANDOM: Tone.WARNING,
    WeightsKind.CODE: Tone.PLAIN,
    WeightsKind.FILE: Tone.PLAIN,
    WeightsKind.MEMORY: Tone.PLAIN,
}


def build(folder: ReportFolder) -> SectionView:
    """The view of a reference."""
    data = codec.load(folder.path / FILES[0], GoldenData)
    checklist = codec.load(folder.path / FILES[1], Checklist)
    document: dict[str, object] = {
        "checklist": msgspec.to_builtins(checklist),
        "determinism": data.determinism.value,
        "seed": data.seed,
        "versions": data.versions,
        "tensors": len(data.tensors),
        "weights_sha256": data.weights.sha256,
        "weights_source": msgspec.to_builtins(data.weights.source),
        "banner": data.banner,
    }
    return SectionView(
        name=NAME,
        title="Reference",
        document=document,
        banner=_banner(data),
        cards=_cards(data, checklist),
        tables=(_checks(checklist), *document_tables(folder.path), _tensors(data)),
        notes=_notes(data),
    )


def _banner(data: GoldenData) -> Banner | None:
    """Where the weights come from; golden data of earlier versions does not say."""
    source = data.weights.source
    if source is None:
        return None
    return Banner(text=f"{data.banner[:1].upper()}{data.banner[1:]}.", tone=_TONES[source.kind])


def _cards(data: GoldenData, checklist: Checklist) -> tuple[Card, ...]:
    ticked = sum(box.ticked for box in checklist.boxes)
    words, tone = _WORDS[data.determinism]
    kept = sum(not one.reason for one in data.tensors)
    modules = len({one.module for one in data.tensors if one.module is not None})
    return (
        Card(
            title="Checklist",
            value=f"{ticked} of {len(checklist.boxes)} boxes",
            detail="completed by checks that ran",
            tone=Tone.GOOD if checklist.complete else Tone.BAD,
        ),
        _weights_card(data.weights),
        Card(title="Determinism", value=words, detail=f"seed {data.seed}, {many(data.threads, 'thread')}", tone=tone),
        Card(title="Golden tensors", value=f"{kept:,}", detail=_golden_detail(modules)),
    )


def _golden_detail(modules: int) -> str:
    return f"of the model and of {many(modules, 'module')}" if modules else "of the model's inputs and outputs"


def _weights_card(weights: Weights) -> Card:
    source = weights.source
    saved = f"saved in {weights.file}" if weights.file else "rebuilt from the source"
    digest = f"SHA-256 {weights.sha256[:12]}, {saved}"
    if source is None:
        return Card(title="Values of the weights", value="unknown", detail=digest)
    return Card(title="Values of the weights", value=_VALUES[source.kind], detail=digest, tone=_TONES[source.kind])


def _checks(checklist: Checklist) -> Table:
    rows: list[tuple[str, Check]] = [(box.title, check) for box in checklist.boxes for check in box.checks]
    return Table(
        name="reference.checks",
        title="Checks",
        empty="No check ran.",
        columns=(
            Column(name="box", title="Deliverable", values=[box for box, _ in rows], shown=Shown.TEXT),
            Column(name="check", title="Check", values=[check.title for _, check in rows], shown=Shown.TEXT),
            Column(
                name="result",
                title="Result",
                values=["passed" if check.passed else "failed" for _, check in rows],
                shown=Shown.STATUS,
            ),
            Column(name="found", title="Details", values=[check.detail for _, check in rows], shown=Shown.TEXT),
        ),
    )


def _tensors(data: GoldenData) -> Table:
    found = data.tensors
    return Table(
        name="reference.tensors",
        title="Golden tensors, in order of execution",
        empty="No tensor was saved.",
        columns=(
            Column(name="name", title="Name", values=[one.name for one in found], shown=Shown.TEXT),
            Column(name="role", title="Role", values=[one.role.value for one in found], shown=Shown.TEXT),
            Column(name="shape", title="Shape", values=[str(list(one.shape)) for one in found], shown=Shown.TEXT),
            Column(name="dtype", title="Dtype", values=[one.dtype for one in found], shown=Shown.TEXT),
            Column(name="reason", title="Reason not saved", values=[one.reason for one in found], shown=Shown.TEXT),
        ),
    )


def _notes(data: GoldenData) -> tuple[str, ...]:
    notes = [f"the values of {one.name} are not saved: {one.reason}" for one in data.tensors if one.reason]
    if data.not_called:
        notes.append(f"{many(len(data.not_called), 'module')} selected by --intermediates did not run")
    if not any(one.role is Role.MODULE_OUTPUT for one in data.tensors):
        notes.append("no intermediate tensors were saved; use --intermediates to save them")
    notes.extend(data.notes)
    notes.extend(f"{drift.name} differs between runs" for drift in data.drifts)
    return tuple(notes)
