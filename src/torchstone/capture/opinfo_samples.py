"""Torch's own test database (OpInfo) -> calls of every op with its sample inputs, traced like any other program.

python opinfo_samples.py [OP ...]  # names of torch's database (add, nn.functional.gelu) or of aten (aten.add.Tensor)

Run as a script, under the recorder: the calls themselves are the result. For each op and element type: up to four
samples, one of them with tensors that are not contiguous, two inputs of torch's reference tests that are no samples,
and two with a tensor of no elements, where it has such; the backward pass of the first floating-point sample; and up to
four inputs that the op must refuse.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchstone.foreign import foreign_code

_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
_MOST_SAMPLES = 4
_MOST_REFERENCES = 200  # that are looked at
_FEW = 2
_SEED = 0


def chosen_ops(names: Sequence[str]) -> Iterator[object]:
    """The entries of the database that are named; all, without a name."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = {name.split(".")[1] if name.startswith("aten.") else name for name in names}
    for entry in op_db:
        last = entry.name.rpartition(".")[2]
        known = {entry.name, entry.aten_name, last, f"{entry.aten_name}_", f"_{entry.aten_name}", f"_{last}"}
        if not wanted or wanted & known:
            yield entry


def call_samples(entry: Any) -> int:
    """Call an op with samples of each element type; how many calls worked."""
    worked = 0
    for dtype in _DTYPES:
        if dtype not in entry.supported_dtypes("cpu"):
            continue
        needs_grad = dtype is torch.float32 and bool(entry.supports_autograd)
        for number, sample in enumerate(_samples(entry, dtype, needs_grad=needs_grad)):
            worked += _called(entry, sample, backward=needs_grad and number == 0)
            if number == 0:
                worked += _called(entry, sample, backward=False, contiguous=False)
    for sample in _errors(entry):
        _called(entry, sample, backward=False)  # it raises, and the recorder notes that
    return worked


def _errors(entry: Any) -> list[Any]:
    """Inputs that the op must refuse."""
    if entry.error_inputs_func is None:
        return []
    torch.manual_seed(_SEED)
    with foreign_code(), _disable_current_modes():  # some of torch's inputs need packages that are not installed
        return [one.sample_input for one in islice(entry.error_inputs("cpu"), _MOST_SAMPLES)]
    return []


def _samples(entry: Any, dtype: torch.dtype, *, needs_grad: bool) -> list[Any]:
    torch.manual_seed(_SEED)
    found: list[Any] = []
    # some of torch's samples need packages that are not installed; how a sample is made is not recorded
    with foreign_code() as ran, _disable_current_modes():
        found = list(islice(entry.sample_inputs("cpu", dtype, requires_grad=needs_grad), _MOST_SAMPLES))
        samples = sum(1 for _ in entry.sample_inputs("cpu", dtype, requires_grad=False))
        references = list(islice(entry.reference_inputs("cpu", dtype, requires_grad=False), _MOST_REFERENCES))
    if ran.error is not None:
        return found
    empty = [one for one in references if _has_no_elements(one)]
    return [*found, *references[samples : samples + _FEW], *empty[:_FEW]]


def _has_no_elements(sample: Any) -> bool:
    given = (sample.input, *sample.args, *sample.kwargs.values())
    return any(isinstance(one, torch.Tensor) and one.numel() == 0 for one in given)


def _called(entry: Any, sample: Any, *, backward: bool, contiguous: bool = True) -> bool:
    with foreign_code() as ran:  # torch's own samples may need what this build lacks; the call is then no sample
        with _disable_current_modes():
            sample = sample if contiguous else sample.noncontiguous()  # which sparse samples refuse
        result = entry(sample.input, *sample.args, **sample.kwargs)
        first = result if isinstance(result, torch.Tensor) else next(iter(result), None)
        if backward and isinstance(first, torch.Tensor) and first.requires_grad:
            first.sum().backward()
    return ran.error is None


def main(names: Sequence[str]) -> int:
    """Call the chosen ops; the exit code is 1 where none of them worked."""
    warnings.simplefilter("ignore")
    worked = sum(call_samples(entry) for entry in chosen_ops(names))
    return 0 if worked else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
