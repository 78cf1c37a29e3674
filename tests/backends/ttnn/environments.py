"""The environment with ttnn that tests run calls in."""

import os
from functools import cache

import pytest

from torchstone.backends.ttnn.environment import describe_environment, interpreter_of

VARIABLE = "TORCHSTONE_TTNN"

needs_ttnn = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set; `make test-ttnn` sets it")


@cache
def ttnn_has_torch() -> bool:
    """Whether ttnn's tracer can run in the environment."""
    found = interpreter_of(ttnn_environment())
    return bool(describe_environment(found).torch)


def ttnn_environment() -> str:
    return os.environ[VARIABLE]
