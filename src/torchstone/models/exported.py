"""Models from .pt2 files: programs saved by torch.export."""

import warnings
from pathlib import Path

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from torchstone.errors import ModelInputsError, UnreadableFileError
from torchstone.foreign import foreign_code
from torchstone.models.exported_archive import UnsafeArchiveError, check_archive
from torchstone.models.inputs import Inputs
from torchstone.models.prepare import generated, require_room

_LONGEST_REASON = 120


def load_exported(path: Path, *, seed: int) -> tuple[nn.Module, Inputs]:
    """Read an exported program, with its module tree where torch can restore it."""
    with warnings.catch_warnings(action="ignore"):  # torch advises itself: it uses names of its own that are old
        program = _read(path)
        return _module_of(program, path), generated(lambda: _inputs_of(program, path, seed=seed), str(path))


def _read(path: Path) -> ExportedProgram:
    try:
        # not torch.export.load: for a file that fails to load it tries an older format, which is pickled
        from torch.export.pt2_archive._package import load_pt2
    except ImportError as error:
        msg = f"torch {torch.__version__} cannot read {path} without pickle; upgrade torch to read .pt2 files"
        raise UnreadableFileError(msg) from error
    with foreign_code(
        passing=(UnsafeArchiveError,)
    ) as ran:  # whatever torch's reader raises, the file is not readable here
        check_archive(path)
        program = load_pt2(path).exported_programs["model"]
    if ran.error is not None:
        reason = _short_reason(ran.error)
        msg = f"{path} is not a readable .pt2 file ({reason}); write it again with torch.export.save of this torch"
        raise UnreadableFileError(msg) from ran.error
    return program


def _short_reason(error: BaseException) -> str:
    """The first sentence of an error, in one line: torch appends advice and the frames of its C++ code."""
    line = str(error).strip().partition("\n")[0]
    sentence = line.partition(". ")[0].rstrip(". ") or type(error).__name__
    return sentence if len(sentence) <= _LONGEST_REASON else f"{sentence[: _LONGEST_REASON - 3]}..."


def _module_of(program: ExportedProgram, path: Path) -> nn.Module:
    with foreign_code():  # unflatten raises many types; the flat module computes the same
        return torch.export.unflatten(program)
    with foreign_code() as ran:  # it checks again what the file says
        return program.module()
    msg = f"the program in {path} cannot be called ({_short_reason(ran.raised)}); write it again with torch.export.save"
    raise UnreadableFileError(msg) from ran.raised


def _inputs_of(program: ExportedProgram, path: Path, *, seed: int) -> Inputs:
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        return Inputs(args=tuple(args), kwargs=dict(kwargs), origin=f"the example inputs in {path}")
    generator = torch.Generator().manual_seed(seed)
    generated, notes = [], []
    for name, value in _placeholders(program):
        tensor = _random_like(value, generator, name, path)
        generated.append(tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        notes.append(f"{name}: {dtype}{list(tensor.shape)}, from the program's own shapes")
    return Inputs(args=tuple(generated), origin=f"generated from the input specs in {path}", notes=tuple(notes))


def _placeholders(program: ExportedProgram) -> list[tuple[str, torch.Tensor]]:
    wanted = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
    nodes = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted)
    return [(node.name, node.meta["val"]) for node in nodes]


def _random_like(value: object, generator: torch.Generator, name: str, path: Path) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        msg = f"{path} has no example inputs and its input {name!r} is not a tensor; pass --inputs file.py::get_inputs"
        raise ModelInputsError(msg)
    shape = [int(size) for size in value.shape]
    require_room(name, shape, value.dtype)
    if value.dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(value.dtype)
    return torch.ones(shape, dtype=value.dtype)
