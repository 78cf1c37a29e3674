"""A vector of a ttnn op -> its answer on the device of this process, which may be a mock. Needs ttnn, not torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchstone.backends.ttnn.device import open_device
from torchstone.backends.ttnn.rebuild import Call, NotRebuiltError, rebuild
from torchstone.backends.ttnn.signatures import UnknownOpError
from torchstone.backends.ttnn.verdicts import ACCEPTED, NOT_RUN, judge_error
from torchstone.foreign import foreign_code
from torchstone.sweep.child.answers import answer_of


def run_vector(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Make one call: accepted, refused with ttnn's text, out of memory with its numbers, or not run."""
    device = open_device()
    about: dict[str, object] = {"device": payload.get("device", ""), "mock": bool(payload.get("mock"))}
    about["lost"] = list(payload.get("lost") or ())
    call = result = None
    try:
        with foreign_code() as ran:  # ttnn raises anything, and that is the result
            call = rebuild(payload["recipe"], device)
            result = call.run()
            if not payload.get("mock", True):
                return _with_values(call, about)
    finally:
        about["notes"] = [] if call is None else list(call.notes)
        del call, result  # their buffers are free again before the next call
    if isinstance(ran.error, (NotRebuiltError, UnknownOpError)):
        about["cause"] = str(ran.error)
        return answer_of(NOT_RUN, str(ran.error), stage="rebuild", verdict=about)
    if ran.error is not None:
        found = judge_error(ran.error)
        ran.error = None  # its frames keep buffers
        about |= {"cause": found.cause, "place": found.place, "memory": found.memory}
        answer = answer_of(found.outcome, found.detail, stage="call", verdict=about)
        return answer | {"traceback": found.text}
    return answer_of(ACCEPTED, "", stage="call", verdict=about)


def _with_values(call: Call, about: dict[str, object]) -> dict[str, Any]:
    """On hardware an accepted call is made again, with values."""
    import ttnn

    from torchstone.sweep.child.ttnn_golden import compare_values

    found = compare_values(call, ttnn)
    if "passed" not in found:
        return answer_of(ACCEPTED, str(found["reason"]), stage="values", verdict=about)
    outcome = "passed" if found["passed"] else "wrong"
    return answer_of(outcome, str(found.get("reason") or ""), stage="values", verdict={**about, **found})


def resident_bytes(_payload: Mapping[str, object]) -> int:
    """The memory of this process: whether it grows over thousands of calls."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
