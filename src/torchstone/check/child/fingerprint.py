"""Digests of what a stored result depends on, taken in the process with the model: weights, inputs, source files."""

from __future__ import annotations

import copy
import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from torchstone.backends.source_digest import closure, loaded_local_files
from torchstone.check.child.model import LoadedModel, Payload, loaded_model
from torchstone.check.child.values import UnserializableError, Writer
from torchstone.numerics.pytree import named_tensors
from torchstone.numerics.tensor_files import bytes_of, read_tensors

_CLOSE = {torch.float16: 1e-2, torch.bfloat16: 3e-2}  # of the largest value; kernels may differ with the alignment
_CLOSE_ELSEWHERE = 1e-5


def fingerprint_task(payload: Payload) -> dict[str, Any]:
    """A task: the digests of the model that this process holds; `files` are those that the user named."""
    return fingerprint(loaded_model(), [Path(file) for file in payload["files"]])


def fingerprint(loaded: LoadedModel, files: list[Path]) -> dict[str, object]:
    """Digests of each weight, of the inputs, and of the user's files with the local files that they import."""
    model = loaded.model
    values = [
        *model.named_parameters(remove_duplicate=False),
        *((f"buffer {name}", buffer) for name, buffer in model.named_buffers(remove_duplicate=False)),
    ]
    distinct = {id(value): value for _, value in values}  # tied weights are read once
    digests = {number: tensor_digest(value) for number, value in distinct.items()}
    sources, _ = closure([*files, *loaded_local_files()])
    weights = {name: digests[id(value)] for name, value in values}
    return {"weights": weights, "inputs": _inputs_digest(loaded), "files": sources, "torch": str(torch.__version__)}


def same_outputs_task(payload: Payload) -> bool:
    """A task: whether the model still gives the outputs in the file `values`.

    A configuration file or a global can change what a model does without changing its code, weights or inputs.
    """
    loaded = loaded_model()
    args, kwargs = copy.deepcopy((loaded.args, loaded.kwargs))
    with torch.no_grad():
        given = list(dict(named_tensors(loaded.model(*args, **kwargs))).values())
    recorded = read_tensors(Path(payload["values"]))
    wanted = [recorded[f"out.{place}"] for place in range(len(given)) if f"out.{place}" in recorded]
    return len(wanted) == len(given) and all(map(_close, wanted, given))


def tensor_digest(tensor: Tensor) -> str:
    """Of shape, dtype and bytes; what has no plain bytes equals nothing, not even itself."""
    about = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.layout}"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        return f"unknown {uuid4().hex}"
    digest = sha256(about.encode())
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    digest.update(bytes_of(plain))
    return digest.hexdigest()


def _inputs_digest(loaded: LoadedModel) -> str:
    writer = Writer("arg", {id(module): path for path, module in loaded.model.named_modules()})
    try:
        text = json.dumps(writer.write((loaded.args, loaded.kwargs)), sort_keys=True)
    except UnserializableError:
        text = "unwritten"  # `same_outputs_task` still sees a change that matters
    tensors = writer.tensors if text != "unwritten" else dict(named_tensors((loaded.args, loaded.kwargs)))
    parts = [text, *(f"{name} {tensor_digest(value)}" for name, value in tensors.items())]
    return sha256("\n".join(parts).encode()).hexdigest()


def _close(wanted: Tensor, given: Tensor) -> bool:
    if wanted.shape != given.shape or wanted.dtype != given.dtype:
        return False
    if not (wanted.is_floating_point() or wanted.is_complex()) or not wanted.numel():
        return bool(torch.equal(wanted, given))
    largest = float(wanted.abs().nan_to_num(0.0, 0.0, 0.0).max())
    close = _CLOSE.get(wanted.dtype, _CLOSE_ELSEWHERE)
    return bool(torch.allclose(wanted, given, rtol=close, atol=close * largest, equal_nan=True))
