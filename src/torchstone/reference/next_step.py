"""What to look at next, from the verdicts in order of execution."""

from collections.abc import Sequence

from torchstone.record.reference import WRONG, Role, Status, TensorVerdict
from torchstone.reference.golden_files import INPUTS, MODULES, OUTPUTS


def next_step(verdicts: Sequence[TensorVerdict]) -> str:
    """One sentence about the first wrong tensor; "" when none is wrong."""
    place = next((place for place, verdict in enumerate(verdicts) if verdict.status in WRONG), None)
    if place is None:
        return ""
    first, before = verdicts[place], verdicts[:place]
    if first.status is Status.MISSING:
        return f"save it as {first.name}, or accept missing outputs with --partial"
    if first.status is Status.WRONG_SHAPE:
        return f"give {first.name} the golden shape first: its values are compared only then"
    if first.status is Status.WRONG_DTYPE:
        return f"save {first.name} as {first.dtype}, the dtype of the reference"
    match first.role:
        case Role.INPUT:
            return f"the port did not run on the golden inputs: use those of golden_data.safetensors, {INPUTS}/..."
        case Role.MODULE_INPUT:
            return f"the inputs of {first.module} are wrong already: look at the ops {_after(before)}before it"
        case Role.MODULE_OUTPUT:
            return _about_module(first, before)
        case Role.OUTPUT:
            return _about_output(verdicts, before)


def _about_module(first: TensorVerdict, before: Sequence[TensorVerdict]) -> str:
    call = first.name.partition(f"/{OUTPUTS}")[0]
    taken = [verdict for verdict in before if verdict.name.startswith(f"{call}/{INPUTS}")]
    compared = [verdict for verdict in taken if verdict.status is Status.PASSED]
    if not compared or len(compared) < len(taken):
        return f"its inputs were not compared: the error is in {first.module}, or {_after(before)}before it"
    inside = [
        one for one in before if one.role is Role.MODULE_OUTPUT and (one.module or "").startswith(f"{first.module}.")
    ]
    if any(one.status is Status.PASSED for one in inside):
        return f"the inputs of {first.module} and the compared modules inside it are correct: look at its own ops"
    return f"the inputs of {first.module} are correct: the error is in this module"


def _about_output(verdicts: Sequence[TensorVerdict], before: Sequence[TensorVerdict]) -> str:
    modules = [verdict for verdict in verdicts if verdict.role is Role.MODULE_OUTPUT]
    if not modules:
        return "make the reference with --intermediates all and save the module outputs of your port to see where"
    if not any(verdict.status is Status.PASSED for verdict in modules):
        return f"save the module outputs of your port, too, as {MODULES}/PATH/{OUTPUTS}, to see where it goes wrong"
    return f"the compared modules are correct: look at the ops {_after(before)}before the output"


def _after(before: Sequence[TensorVerdict]) -> str:
    """The last module that is known to be correct."""
    right = [one for one in before if one.role is Role.MODULE_OUTPUT and one.status is Status.PASSED]
    return f"after {right[-1].module} and " if right else ""
