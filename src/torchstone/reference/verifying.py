"""verify(): build the model again, replay the golden inputs, compare with the golden outputs."""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from torchstone.errors import InputError, ModelError
from torchstone.models.inputs import InputOptions
from torchstone.models.loading import Loaded, load
from torchstone.numerics.tolerance import DEFAULT_PCC
from torchstone.record import codec
from torchstone.record.checklist import CHECKLIST_FILE, Checklist
from torchstone.record.comparison import Comparison
from torchstone.record.golden import GoldenData
from torchstone.reference.golden_files import load_golden
from torchstone.reference.making import versions
from torchstone.reference.replaying import replay
from torchstone.reference.running import seeded
from torchstone.reference.sealing import broken_seals
from torchstone.reference.weights import put_back, refuse_without_values, weights_of

_SHOWN = 3
_DECIDE_BITS = ("torch", "transformers")


def verify(
    folder: Path, *, model: str | None = None, inputs: str | None = None, pcc: float = DEFAULT_PCC
) -> Comparison:
    """Replay golden data on a model built anew; `model` and `inputs` name what has moved."""
    golden = load_golden(folder)
    loaded = _built_anew(golden.data, model, inputs)
    refuse_without_values(loaded.model)
    weights = golden.data.weights
    if weights.file:
        put_back(loaded.model, folder / weights.file, weights)
    source = model or golden.data.rebuild.model
    done = replay(golden, loaded.model, loaded.inputs, candidate=f"{source}, built anew", pcc=pcc)
    found, broken = done.comparison, _broken_seals(folder)
    other_weights = _weight_notes(golden.data, loaded.model)
    notes = (*broken, *found.notes, *_misfit_notes(done.misfits), *other_weights, *_version_notes(golden.data))
    return msgspec.structs.replace(
        found,
        passed=found.passed and not broken,
        next_step=_next_step(found, other_weights=bool(other_weights)),
        notes=(*notes, *_bits_note(found)),
    )


def _built_anew(data: GoldenData, model: str | None, inputs: str | None) -> Loaded:
    rebuild = data.rebuild
    source, given = model or rebuild.model, inputs or rebuild.inputs
    if not source:
        msg = f"the reference of {data.model} was made from a module in memory; name its source with --model"
        raise InputError(msg)
    try:
        with seeded(data.seed):
            return load(source, inputs=given, options=_options(rebuild.options), device="cpu")
    except ModelError as error:
        if model and (inputs or not rebuild.inputs):
            raise
        named = f"{rebuild.model}{f' with inputs from {rebuild.inputs}' if rebuild.inputs else ''}"
        msg = f"{error}; the reference was made from {named}: say where that is now with --model or --inputs"
        raise ModelError(msg) from error


def _next_step(found: Comparison, *, other_weights: bool) -> str:
    """What to look at when the reference itself is not what it was: there is no port to blame."""
    if not found.next_step:
        return ""
    if other_weights:
        return "other weights give other outputs: make the reference again with --with-weights"
    if found.first_wrong_module:
        return found.next_step
    return "the model or what it is built with has changed: make the reference again, --intermediates all tells more"


def _broken_seals(folder: Path) -> list[str]:
    """Files of the reference that are not what was checked; golden data alone has no checklist."""
    path = folder / CHECKLIST_FILE
    return broken_seals(folder, codec.load(path, Checklist)) if path.is_file() else []


def _options(saved: dict[str, int | str | None]) -> InputOptions:
    options: dict[str, Any] = dict(saved)
    return InputOptions(**options)


def _misfit_notes(misfits: tuple[str, ...]) -> list[str]:
    return [f"inputs that do not fit the golden ones: {', '.join(misfits[:_SHOWN])}"] if misfits else []


def _weight_notes(data: GoldenData, model: nn.Module) -> list[str]:
    if data.weights.file or weights_of(model).sha256 == data.weights.sha256:
        return []
    return ["the weights are not those of the golden run: the source makes others now; --with-weights would keep them"]


def _version_notes(data: GoldenData) -> list[str]:
    now = versions()
    notes = [
        f"made with {name} {then}, replayed with {name} {now.get(name, 'unknown')}"
        for name, then in data.versions.items()
        if name in _DECIDE_BITS and now.get(name) != then
    ]
    if data.threads != torch.get_num_threads():
        notes.append(f"made with {data.threads} threads, replayed with {torch.get_num_threads()}: last bits may differ")
    return notes


def _bits_note(found: Comparison) -> list[str]:
    measured = [verdict.errors for verdict in found.verdicts if verdict.errors is not None]
    equal = sum(errors.equal for errors in measured)
    return [f"{equal} of {len(measured)} tensors are equal bit for bit"]
