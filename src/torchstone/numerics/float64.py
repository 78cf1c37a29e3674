"""Run code once, and get every result twice: in its own dtype, and computed in float64 from the same inputs.

The code sees its own dtypes: `x.dtype`, `torch.finfo(x.dtype).min` and every branch on a value are those of an
ordinary run, which `model.double()` would change. Beside each float tensor stands its float64 twin, made by the same
ops from the twins of their arguments; a cast to a narrower float rounds the tensor and leaves the twin. Integers and
booleans have no twin, so both computations take the same branches, the same indices and the same masks.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from torchstone.numerics.dispatch import KernelOp, KernelOpMode, OpArguments, OpKeywords, op_name
from torchstone.numerics.selection import Selection, selection_of

# Draw the same numbers for any dtype when the generator starts from the same state: the mask is drawn, not the values.
_SAME_DRAWS = ("native_dropout", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math")


class Float64Mode(KernelOpMode):
    """Computes float64 twins while it is entered; `twin` gives the one of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.without_kernel: Counter[str] = Counter()  # ops that have no float64 kernel here: their twin is rounded
        self.random_ops: set[str] = set()  # that drew numbers, such as randn_like
        self._twins: WeakIdKeyDictionary = WeakTensorKeyDictionary()
        self._selections: WeakIdKeyDictionary = WeakTensorKeyDictionary()

    @property
    def needs_plain_kernels(self) -> bool:
        """Whether an op of oneDNN stood in the way: torch has the same in plain kernels, which have float64."""
        return any("mkldnn" in name for name in self.without_kernel)

    def twin(self, tensor: Tensor) -> Tensor:
        """The float64 (or complex128) value of a tensor; of one that no op made, its own value."""
        found = self._twins.get(tensor)
        return _widened(tensor) if found is None else found

    def selection(self, tensor: Tensor) -> Selection | None:
        """What an integer tensor selects from, where an op such as topk or argmax made it."""
        return self._selections.get(tensor)

    def run_op(self, func: KernelOp, args: OpArguments, kwargs: OpKeywords) -> object:
        """Run an op for its own result, then for the twin of it."""
        name = op_name(func)
        keeps = _shares_memory(func)
        wide_args, wide_kwargs = tree_map(lambda one: self._wide_argument(one, keep=keeps), (args, kwargs))
        state = torch.get_rng_state() if _is_random(func) else None
        result = func(*args, **kwargs)
        if state is not None and not torch.equal(state, torch.get_rng_state()):
            self.random_ops.add(name.split(".")[1])
        outputs = [one for one in tree_flatten(result)[0] if isinstance(one, Tensor)]
        if any(map(_has_twin, outputs)):
            self._pair(outputs, self._wide_outputs(func, (wide_args, wide_kwargs), outputs, state))
        elif keeps and any(map(_has_twin, _tensors(args, kwargs))):  # writes to an argument and returns nothing
            self._wide_outputs(func, (wide_args, wide_kwargs), outputs, state)
        selected = selection_of(name, args, wide_args, kwargs, outputs)
        if selected is not None:
            self._selections[outputs[-1]] = selected
        return result

    def _wide_argument(self, value: object, *, keep: bool) -> object:
        if isinstance(value, torch.dtype):
            return _wide_dtype(value)
        if not isinstance(value, Tensor):
            return value
        if not _has_twin(value):
            return value.clone() if keep and value.layout == torch.strided else value  # written to once, not twice
        found = self._twins.get(value)
        if found is None:
            found = _widened(value)
            if keep and not isinstance(value, nn.Parameter):
                # The op writes to it or gives a view of it: later ops must meet the same memory. Nothing writes to
                # weights, and twins of all of them would take twice the memory of the model.
                self._twins[value] = found
        return found

    def _wide_outputs(
        self, func: KernelOp, wide: Any, outputs: list[Tensor], state: Tensor | None
    ) -> list[Tensor] | None:
        args, kwargs = wide
        name = op_name(func)
        if state is not None and name.split(".")[1] not in _SAME_DRAWS:
            return None  # drawn numbers are what they are
        if name == "aten.view.dtype" or any(isinstance(one, torch.UntypedStorage) for one in tree_flatten(wide)[0]):
            return None  # memory as bytes, as deepcopy uses it: read as float64 it would be other numbers
        later = torch.get_rng_state() if state is not None else None
        compute = _OWN_KERNELS.get(name, func)
        try:
            if state is not None:
                torch.set_rng_state(state)
            found = [one for one in tree_flatten(compute(*args, **kwargs))[0] if isinstance(one, Tensor)]
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            self.without_kernel[name] += 1
            return None
        finally:
            if later is not None:
                torch.set_rng_state(later)
        if [one.shape for one in found] != [one.shape for one in outputs]:
            self.without_kernel[name] += 1
            return None
        return found

    def _pair(self, outputs: list[Tensor], twins: list[Tensor] | None) -> None:
        for place, output in enumerate(outputs):
            if not _has_twin(output):
                continue
            twin = None if twins is None else twins[place]
            if twin is None or twin.dtype not in (torch.float64, torch.complex128):
                twin = _widened(output)
            self._twins[output] = twin


@contextmanager
def kernels(*, plain: bool) -> Iterator[None]:
    """With plain kernels torch does without oneDNN while open; otherwise nothing changes."""
    if not plain:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about Intel GPUs that are not there
        off = torch.backends.mkldnn.flags(enabled=False)
        off.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            off.__exit__(None, None, None)


def _grouped_mm(left: Tensor, right: Tensor, ends: Tensor, *_: object, **__: object) -> Tensor:
    """Rows of a matrix, group by group, times the matrix of their group: the experts of a mixture."""
    if left.dim() != 2 or right.dim() != 3:  # noqa: PLR2004 - the form that models use
        msg = "grouped_mm of these dimensions has no float64 form"
        raise NotImplementedError(msg)
    result = left.new_zeros(left.shape[0], right.shape[-1])
    start = 0
    for group, end in enumerate(ends.tolist()):
        result[start:end] = left[start:end] @ right[group]
        start = max(start, end)
    return result


_OWN_KERNELS = {"aten._grouped_mm.default": _grouped_mm}  # torch has no float64 kernel for them


def _tensors(args: object, kwargs: object) -> list[Tensor]:
    return [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]


def _has_twin(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_quantized


def _widened(tensor: Tensor) -> Tensor:
    plain = tensor.detach()
    return plain.to(torch.complex128 if plain.is_complex() else torch.float64, copy=True)


def _wide_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _shares_memory(func: KernelOp) -> bool:
    """Whether an op gives a view of an argument, or writes to one."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False
    return any(one.alias_info is not None for one in (*schema.arguments, *schema.returns))


def _is_random(func: KernelOp) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
