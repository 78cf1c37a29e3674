"""Check several models on several backends, and write the table of verdicts and the ops that unlock most models."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from torchstone.check.check_model import Observer, Subject, run_check
from torchstone.check.matrix import Cell, results_page, unlocking_ops, unlocking_page
from torchstone.check.settings import Folder, Settings
from torchstone.errors import InputError, TorchstoneError, require_package
from torchstone.record.codec import write_atomically
from torchstone.record.folder_lock import exclusive
from torchstone.workflows.check import STAGES
from torchstone.workflows.progress import SILENT, Progress

RESULTS_PAGE = "results.md"
UNLOCKING_PAGE = "unlocking.md"
_HEAD = "# Models on backends\n\nWritten by `torchstone check matrix`. Versions:\n"
_UNLOCKING_HEAD = """# Which op unlocks most models

Written by `torchstone check matrix`. An op unlocks a model when nothing else fails in it: the model works once this op
does.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRequest:
    """Models and backends, and the folder for one check of each pair."""

    models: tuple[str, ...]
    backends: tuple[str, ...]
    folder: Path
    settings: Settings  # its backend is replaced
    pythons: Mapping[str, str] = field(default_factory=dict)  # backend -> the interpreter of its environment


def run_matrix(request: MatrixRequest, progress: Progress = SILENT, observer: Observer | None = None) -> list[Cell]:
    """Check every model on every backend; a pair that is there already runs only what has changed.

    A model that cannot be loaded or a backend that cannot run is a cell that says so. Raises InputError without a
    model or a backend, and for an interpreter of a backend that is not asked for; MissingExtraError without torch.
    """
    if not request.models or not request.backends:
        msg = "give one or more models and one or more --backend"
        raise InputError(msg)
    strangers = sorted(set(request.pythons) - set(request.backends))
    if strangers:
        msg = f"--python names the backend {strangers[0]!r}, which no --backend asks for"
        raise InputError(msg)
    if set(request.backends) - set(request.pythons):
        require_package("torch", needed_for="checking a model")
    cells = []
    for backend in request.backends:
        for model in request.models:
            progress.note(f"{model} on {backend}")
            cells.append(_check(request, model, backend, observer))
            write_pages(cells, request.folder)
    progress.note(f"wrote {request.folder / RESULTS_PAGE} and {request.folder / UNLOCKING_PAGE}")
    return cells


def _check(request: MatrixRequest, model: str, backend: str, observer: Observer | None) -> Cell:
    settings = msgspec.structs.replace(request.settings, backend=backend, python=request.pythons.get(backend))
    folder = Folder(path=Path(os.path.realpath(request.folder / _file_name(backend) / _file_name(model))))
    try:
        with exclusive(folder.path):
            result = run_check(Subject(model=model), settings, folder, stages=STAGES, resume=True, observer=observer)
    except TorchstoneError as error:
        return Cell(model=model, backend=backend, refused=str(error))
    return Cell(model=model, backend=backend, result=result)


def write_pages(cells: Sequence[Cell], folder: Path) -> None:
    """Write both pages from what is known so far."""
    write_atomically(folder / RESULTS_PAGE, results_page(cells, _HEAD).encode())
    write_atomically(folder / UNLOCKING_PAGE, unlocking_page(cells, _UNLOCKING_HEAD).encode())


def matrix_document(cells: Sequence[Cell]) -> bytes:
    """Verdicts and the ops that unlock most models, as one JSON document."""
    rows = [{"model": one.model, "backend": one.backend, "verdict": one.text, "refused": one.refused} for one in cells]
    ops = msgspec.to_builtins(unlocking_ops(cells))
    return msgspec.json.encode({"schema": "torchstone/check_matrix/1", "cells": rows, "unlocking": ops})


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "_", text).strip("_.") or "model"
