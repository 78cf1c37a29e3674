"""A failing vector -> one Python script that shows the failure and needs nothing else."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any

from torchstone.backends.gradients import gradients_source
from torchstone.backends.program_source import TENSORS_IN_SOURCE, backend_source, function_source
from torchstone.numerics.standalone import source_of_difference
from torchstone.numerics.tolerance import limits_by_dtype, read_options
from torchstone.numerics.verdict import error_limit
from torchstone.sweep.child.inputs import make_inputs
from torchstone.sweep.child.program import program_for, unread_names

_WITHOUT_NOISE = 1e-5  # relative error, for a failure that is no number: a shape, a dtype
_MAIN = '''
class Program(torch.nn.Module):
    def forward(self, *inputs):
        return program(*inputs)


def main():
    """Exit code 1 when the backend differs from eager PyTorch."""
    torch.set_num_threads(1)
    refusal = None
    try:
        expected = outputs_of(program, make_inputs(INPUTS, seed=SEED))
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    args = tuple(make_inputs(INPUTS, seed=SEED))
    try:
        actual = outputs_of(compiled(Program(), args), args)
    except Exception as error:
        if refusal is None:
            raise
        print(f"both refuse the call: {refusal}; {type(error).__name__}: {error}")
        return 0
    if refusal is not None:
        print(f"eager PyTorch refuses the call: {refusal}")
        print("the backend differs from eager PyTorch: it gives a result")
        return 1
    bad = len(expected) != len(actual)
    for number, (wanted, given) in enumerate(zip(expected, actual)):
        limits = LIMITS.get(str(wanted.dtype).removeprefix("torch."), LIMITS["float"])
        same = wanted.shape == given.shape and wanted.dtype == given.dtype
        wrong = "shape or dtype" if not same else difference(wanted, given, **limits)
        print(f"output {number}: {'ok' if not wrong else wrong}")
        bad = bad or bool(wrong)
    if bad:
        print("the backend differs from eager PyTorch")
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
'''

_OUTPUTS = """\
def outputs_of(run, args):
    with torch.no_grad():
        return tensors_in(run(*args))
"""
_OUTPUTS_AND_GRADIENTS = """\
def outputs_of(run, args):
    outputs, gradients = with_gradients(run, torch.nn.Module(), args, {})
    return [one.detach() for one in tensors_in(outputs)] + list(gradients.values())
"""


def source(payload: Mapping[str, Any]) -> str:
    """The text of the script."""
    program = program_for(payload)
    if payload.get("backward"):
        unread = unread_names(program)
        program["outputs"] = [tree for tree in program["outputs"] if tree["tensor"] not in unread]
    needs, compiled = backend_source(payload["backend"], payload.get("options") or {})
    head = f'"""{payload["title"]}\n\nNeeds {needs}.\n"""\n'
    making = inspect.getsource(sys.modules[make_inputs.__module__]).split('"""', 2)[2].strip()
    tolerance = payload.get("tolerance")
    limits = limits_by_dtype(read_options(tolerance)) if tolerance else _limits_of_noise(payload.get("verdict"))
    data = f"\nSEED = {int(payload.get('seed', 0))}\nLIMITS = {limits!r}\nINPUTS = {_literal(payload['inputs'])}\n"
    outputs_of = f"{gradients_source()}\n\n{_OUTPUTS_AND_GRADIENTS}" if payload.get("backward") else _OUTPUTS
    functions = [function_source(program), compiled, TENSORS_IN_SOURCE, outputs_of, source_of_difference()]
    return "\n".join([head + making, data, *(f"\n{text}" for text in functions), _MAIN])


def _limits_of_noise(verdict: Any) -> dict[str, dict[str, float | None]]:
    """The relative error that noise explains, as the verdict of the vector has it."""
    leaves = (verdict or {}).get("leaves", ())
    wrong = next((leaf for leaf in leaves if not leaf["passed"] and not leaf.get("unread")), None)
    limit = error_limit(wrong or {}).get("relative_l2", _WITHOUT_NOISE)
    return {"float": {"pcc": None, "relative_l2": limit, "rtol": 0.0, "atol": 0.0}}


def _literal(inputs: object) -> str:
    """Descriptions as Python."""
    return repr(json.loads(json.dumps(inputs)))
