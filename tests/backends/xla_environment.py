"""The answers of the environment of torch_xla, asked once."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tests.backends.recorded_calls import lone_call
from torchstone.backends.recorded import program_of_calls, tensor_description, tensor_name
from torchstone.capture import capture
from torchstone.models import load

ROOT = Path(__file__).parents[2]
VARIABLE = "TORCHSTONE_XLA_PYTHON"

needs_xla = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set; `make test-xla` sets it")


@cache
def xla_answers() -> dict[str, Any]:
    script = Path(__file__).with_name("in_xla.py")
    with NamedTemporaryFile("w", suffix=".json") as programs:
        json.dump(recorded_ops("tiny:llama"), programs)
        programs.flush()
        return _asked([os.environ[VARIABLE], str(script), str(ROOT / "src"), str(ROOT), programs.name])


def recorded_ops(model: str) -> dict[str, Any]:
    """Every distinct op call of a model with a tensor in its result: name -> [program, how to make its tensors]."""
    found = {}
    for number, signature in enumerate(capture(*load(model)).ops.signatures):
        tensors = {
            tensor_name(place): tensor_description(spec, seed=place) | {"whole": (0, 1)}
            for place, spec in enumerate(signature.input_specs)
        }
        if signature.output_specs:
            found[f"{number} {signature.op}"] = [program_of_calls([lone_call(signature)]), tensors]
    return found


def _asked(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        command,
        capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
