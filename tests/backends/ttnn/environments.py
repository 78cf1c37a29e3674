"""The environment with ttnn that tests run calls in."""

import os

import pytest

VARIABLE = "TORCHSTONE_TTNN"

needs_ttnn = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set; `make test-ttnn` sets it")


def ttnn_environment() -> str:
    return os.environ[VARIABLE]
