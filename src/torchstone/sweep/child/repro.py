"""A failing vector -> one Python script that shows the failure and needs nothing else."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from typing import Any

from torchstone.backends.program_source import function_source
from torchstone.numerics.standalone import source_of_difference
from torchstone.numerics.tolerance import limits_by_dtype, read_options
from torchstone.sweep.child.inputs import make_inputs
from torchstone.sweep.child.program import program_for

_PLAIN = {"inductor": "inductor", "aot_eager": "aot_eager"}  # what torch.compile itself offers

_OWN_BACKEND = """
def run_on_backend(inputs):
    return torch.compile(program, backend="{name}", fullgraph=True)(*inputs)
"""
_EAGER = """
def run_on_backend(inputs):
    return program(*inputs)
"""
_TORCHSTONE_BACKEND = """
def run_on_backend(inputs):
    from torchstone.backends.lookup import open_backend  # this backend is reached through torchstone

    class Program(torch.nn.Module):
        def forward(self, *inputs):
            return program(*inputs)

    backend = open_backend({name!r}, {options!r})
    backend.warm_up()
    return backend.compile(Program(), tuple(inputs), {{}})(*inputs)
"""
_MAIN = '''
def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value or () for tensor in flat(part)] if isinstance(value, (list, tuple)) else []


def main():
    """Exit code 1 when the backend differs from eager PyTorch."""
    torch.set_num_threads(1)
    with torch.no_grad():
        expected = flat(program(*make_inputs(INPUTS, seed=SEED)))
        actual = flat(run_on_backend(make_inputs(INPUTS, seed=SEED)))
    bad = len(expected) != len(actual)
    for number, (wanted, given) in enumerate(zip(expected, actual)):
        limits = LIMITS.get(str(wanted.dtype).removeprefix("torch."), LIMITS["float"])
        same = wanted.shape == given.shape and wanted.dtype == given.dtype
        wrong = "shape or dtype" if not same else difference(wanted, given, **limits)
        print(f"output {number}: {'ok' if not wrong else wrong}")
        bad = bad or bool(wrong)
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
'''


def source(payload: Mapping[str, Any]) -> str:
    """The text of the script."""
    program = program_for(payload)
    backend = payload["backend"]
    options = dict(payload.get("options") or {})
    if backend == "eager":
        run = _EAGER
    elif backend in _PLAIN and not options:
        run = _OWN_BACKEND.format(name=_PLAIN[backend])
    else:
        run = _TORCHSTONE_BACKEND.format(name=backend, options=options)
    needs = f"torch and torchstone (backend {backend})" if "torchstone" in run else "torch alone"
    head = f'"""{payload["title"]}\n\nNeeds {needs}.\n"""\n'
    making = inspect.getsource(sys.modules[make_inputs.__module__]).split('"""', 2)[2].strip()
    data = (
        f"\nSEED = {int(payload.get('seed', 0))}\n"
        f"LIMITS = {limits_by_dtype(read_options(payload.get('tolerance')))!r}\n"
        f"INPUTS = {_literal(payload['inputs'])}\n"
    )
    judging = "\n" + source_of_difference()
    return "\n".join([head + making, data, "\n" + function_source(program), run, judging, _MAIN])


def _literal(inputs: Any) -> str:
    """Descriptions as Python."""
    return repr(json.loads(json.dumps(inputs)))
