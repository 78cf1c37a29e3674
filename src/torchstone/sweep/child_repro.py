"""A failing vector -> one Python script that shows the failure and needs nothing else."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from torchstone.backends.program_source import function_source
from torchstone.numerics.tolerance import DEFAULT_PCC
from torchstone.sweep import child_inputs
from torchstone.sweep.child_program import program_for

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
    from torchstone.backends.opening import open_backend  # this backend is reached through torchstone

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
        same = wanted.shape == given.shape and wanted.dtype == given.dtype
        wrong = "shape or dtype" if not same else _difference(wanted, given)
        print(f"output {number}: {'ok' if not wrong else wrong}")
        bad = bad or bool(wrong)
    return int(bad)


def _difference(wanted, given):
    x, y = wanted.double().flatten(), given.double().flatten()
    if not torch.equal(x.isfinite(), y.isfinite()):
        return "NaN or Inf in other places"
    x, y = x[x.isfinite()], y[y.isfinite()]
    if not x.numel() or torch.allclose(x, y, rtol=RTOL, atol=1e-5):
        return ""
    error = float((x - y).norm() / x.norm().clamp_min(1e-30))
    x, y = x - x.mean(), y - y.mean()
    pcc = float((x @ y) / (x.norm() * y.norm()).clamp_min(1e-30))
    return "" if error <= WORST and pcc >= PCC else f"PCC {pcc:.6g}, relative L2 error {error:.3g}"


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
    making = inspect.getsource(child_inputs).split('"""', 2)[2].strip()
    pcc = float((payload.get("tolerance") or {}).get("pcc", DEFAULT_PCC))
    data = (
        f"\nSEED = {int(payload.get('seed', 0))}\nRTOL = 1.3e-6\nPCC = {pcc}\n"
        "WORST = 2 * (1 - PCC * PCC) ** 0.5\n"
        f"INPUTS = {_literal(payload['inputs'])}\n"
    )
    return "\n".join([head + making, data, "\n" + function_source(program), run, _MAIN])


def _literal(inputs: Any) -> str:
    """Descriptions as Python."""
    return repr(json.loads(json.dumps(inputs)))
