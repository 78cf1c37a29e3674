"""Whether vectors are valid calls: asked on the meta device, where a call costs nothing. Needs torch alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from torchstone.backends.op_info import Role, role_of
from torchstone.backends.program import find_op
from torchstone.backends.program_format import ProgramError
from torchstone.backends.protocol import Unsupported
from torchstone.foreign import foreign_code
from torchstone.sweep.child.answers import first_line
from torchstone.sweep.child.inputs import meta_inputs
from torchstone.sweep.child.program import run_steps

_NO_ANSWER_ON_META = (NotImplementedError,)  # the op has no rule there, or reads values that are not there
_READS_VALUES = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)

_STRICTEST_FIRST = (Role.UNKNOWN, Role.RANDOM, Role.COMPUTE, Role.FACTORY, Role.VIEW)  # of several steps


def warm_up(_payload: Mapping[str, object]) -> None:
    """Let torch load its rules for the meta device, once for all processes that are copied from this one."""
    torch.empty(2, 2, device="meta").mm(torch.empty(2, 2, device="meta")).softmax(0)


def check_vectors(payload: Mapping[str, Any]) -> list[dict[str, object]]:
    """For each call: its role, whether it is valid (None: the meta device cannot tell), and why not."""
    return [_check(call) for call in payload["calls"]]


def _check(call: Mapping[str, Any]) -> dict[str, object]:
    try:
        ops = [find_op(step["op"]) for step in call["steps"]]
    except (Unsupported, ProgramError) as error:
        return {"role": "unknown", "valid": False, "reason": str(error)}
    roles = {role_of(op) for op in ops}
    role = min(roles, key=_STRICTEST_FIRST.index)
    try:
        valid, reason = _runs_on_meta(ops, call)
    except (Unsupported, ProgramError) as error:
        valid, reason = False, str(error)
    return {"role": role.value, "valid": valid, "reason": reason}


def _runs_on_meta(ops: list[OpOverload], call: Mapping[str, Any]) -> tuple[bool | None, str]:
    for op in ops:
        if any(tag in op.tags for tag in _READS_VALUES):
            return None, f"{op} reads values"
    with foreign_code() as ran:  # torch refuses wrong calls with errors of every kind
        tensors = meta_inputs(call["inputs"])
        names = [about["name"] for about in call["inputs"]]
        with torch.no_grad():
            run_steps({"steps": _on_meta(call["steps"])}, dict(zip(names, tensors, strict=True)))
    if isinstance(ran.error, _NO_ANSWER_ON_META):
        return None, first_line(ran.error)
    if ran.error is not None:
        return False, first_line(ran.error)
    return True, ""


def _on_meta(value: object) -> Any:
    """The same arguments with the meta device in the place of every other."""
    if isinstance(value, Mapping):
        if value.get("kind") == "device":
            return {"kind": "device", "text": "meta"}
        return {name: _on_meta(part) for name, part in value.items()}
    return [_on_meta(part) for part in value] if isinstance(value, list) else value
