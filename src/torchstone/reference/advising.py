"""Verdicts in order of execution -> what a porting engineer should look at next."""

from collections.abc import Sequence

from torchstone.record.comparison import WRONG, Status, TensorVerdict
from torchstone.record.golden import Role
from torchstone.reference.names import INPUTS, MODULES, OUTPUTS


def next_step(verdicts: Sequence[TensorVerdict]) -> str:
    """One sentence about the first wrong tensor; "" when none is wrong."""
    place = next((place for place, verdict in enumerate(verdicts) if verdict.status in WRONG), None)
    if place is None:
        return ""
    first, before = verdicts[place], verdicts[:place]
    if first.status is Status.MISSING:
        return f"save it as {first.name}, or leave out what your port does not give with --allow-missing"
    if first.status is Status.WRONG_SHAPE:
        return f"bring {first.name} into the golden shape first: only then are its values compared"
    if first.status is Status.WRONG_DTYPE:
        return f"save {first.name} as {first.dtype}, the kind of number that the reference gives"
    match first.role:
        case Role.INPUT:
            return f"the port was not fed the golden inputs: give it those of golden_data.safetensors, {INPUTS}/..."
        case Role.MODULE_INPUT:
            return f"what {first.module} takes is wrong already: look at the ops {_after(before)}before it"
        case Role.MODULE_OUTPUT:
            return _about_module(first, before)
        case Role.OUTPUT:
            return _about_output(verdicts, before)


def _about_module(first: TensorVerdict, before: Sequence[TensorVerdict]) -> str:
    call = first.name.partition(f"/{OUTPUTS}")[0]
    taken = [verdict for verdict in before if verdict.name.startswith(f"{call}/{INPUTS}")]
    compared = [verdict for verdict in taken if verdict.status is Status.PASSED]
    if not compared or len(compared) < len(taken):
        return f"what it takes was not compared: the fault is in {first.module}, or {_after(before)}before it"
    inside = [
        one for one in before if one.role is Role.MODULE_OUTPUT and (one.module or "").startswith(f"{first.module}.")
    ]
    if any(one.status is Status.PASSED for one in inside):
        return f"what {first.module} takes is right, and so are the compared modules inside it: look at its own ops"
    return f"what {first.module} takes is right: the fault is in this module"


def _about_output(verdicts: Sequence[TensorVerdict], before: Sequence[TensorVerdict]) -> str:
    modules = [verdict for verdict in verdicts if verdict.role is Role.MODULE_OUTPUT]
    if not modules:
        return "make the reference with --intermediates all, and save what the modules of your port give, to see where"
    if not any(verdict.status is Status.PASSED for verdict in modules):
        return f"save what the modules of your port give, too, as {MODULES}/PATH/{OUTPUTS}, to see where it goes wrong"
    return f"the modules that were compared are right: look at the ops {_after(before)}before the output"


def _after(before: Sequence[TensorVerdict]) -> str:
    """The last place that is known to be right."""
    right = [one for one in before if one.role is Role.MODULE_OUTPUT and one.status is Status.PASSED]
    return f"after {right[-1].module} and " if right else ""
