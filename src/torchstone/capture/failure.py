"""An exception from a forward pass -> where and how it ended."""

import traceback
from pathlib import Path

import torch

from torchstone.record.trace import Failure

_NOT_THE_MODEL = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent))


def failure_of(error: BaseException, *, module: str, op: str, arguments: str) -> Failure:
    """Describe an error with the line of the model's own code that led to it."""
    return Failure(
        module=module,
        op=op,
        arguments=arguments,
        error=f"{type(error).__name__}: {_first_words(error)}",
        location=_own_line(error),
    )


def _first_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "no message"


def _own_line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_MODEL)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno} in {frame.name}"
