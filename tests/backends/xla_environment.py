"""The answers of the environment of torch_xla, asked once."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
VARIABLE = "TORCHSTONE_XLA_PYTHON"

needs_xla = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set; `make test-xla` sets it")


@cache
def xla_answers() -> dict[str, Any]:
    script = Path(__file__).with_name("in_xla.py")
    done = subprocess.run(
        [os.environ[VARIABLE], str(script), str(ROOT / "src"), str(ROOT)],
        capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
