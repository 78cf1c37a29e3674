"""Runs of real ttnn on a mock board, with the log and the truth that they write."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.memory.log_generator.run import Row, Truth
from torchstone.backends.ttnn.boards import find_board
from torchstone.backends.ttnn.environment import interpreter_of, kernel_cache


def real_run(environment: str, folder: Path, seed: int, board: str) -> dict[str, Any]:
    """Run on a mock board; the truth about it."""
    python = interpreter_of(environment)
    root = str(Path(__file__).parents[2])
    given = {**os.environ, **find_board(board).variables(kernel_cache(python)), "PYTHONPATH": root}
    command = [python, "-m", "tests.memory.log_generator.real_allocator", str(seed), str(folder)]
    subprocess.run(command, check=True, env=given, cwd=folder, timeout=300)
    found: dict[str, Any] = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return found


def truth_of(document: dict[str, Any]) -> Truth:
    """What the checks of generated logs take."""

    def pairs(by_memory: dict[str, list[list[Any]]]) -> dict[str, list[Any]]:
        return {name: [tuple(one) for one in each] for name, each in by_memory.items()}

    rows = [
        Row("", "", "", 0, 0, const_eval=False, memory={}, live=pairs(row["live"]), blocks=pairs(row["blocks"]))
        for row in document["rows"]
    ]
    return Truth(rows=rows)
