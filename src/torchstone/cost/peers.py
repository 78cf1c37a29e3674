"""Other FLOP counters on the same model -> what each reports, in FLOPs.

A counter runs as its own documentation shows. Those that count multiply-adds are doubled, so that all compare.
"""

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.cost import PeerCount

if TYPE_CHECKING:
    from torch import nn


Arguments = tuple[object, ...]
Keywords = Mapping[str, object]
Counts = tuple[int, dict[str, int], dict[str, int]]  # total FLOPs, FLOPs by op, calls of ops that were skipped
Counter = Callable[["nn.Module", Arguments, Keywords], Counts]


def _flop_counter(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*args, **kwargs)
    by_op = {str(op): int(flops) for op, flops in counter.get_flop_counts().get("Global", {}).items()}
    return int(counter.get_total_flops()), by_op, {}


def _fvcore(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    analysis = import_module("fvcore.nn").FlopCountAnalysis(positional(model, kwargs), (*args, *kwargs.values()))
    analysis.unsupported_ops_warnings(False)  # noqa: FBT003 - its own signature
    analysis.uncalled_modules_warnings(False)  # noqa: FBT003 - its own signature
    by_op = {name: 2 * int(count) for name, count in analysis.by_operator().items()}
    skipped = {name: int(count) for name, count in analysis.unsupported_ops().items()}
    return 2 * int(analysis.total()), by_op, skipped


def _calflops(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    flops, _, _ = import_module("calflops").calculate_flops(
        model=model, args=list(args), kwargs=dict(kwargs), print_results=False, output_as_string=False
    )
    return int(flops), {}, {}


def _ptflops(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    macs, _ = import_module("ptflops").get_model_complexity_info(
        positional(model, kwargs), (1,), input_constructor=lambda _: _numbered((*args, *kwargs.values())),
        as_strings=False, print_per_layer_stat=False, verbose=False, backend="aten",
    )  # fmt: skip
    return 2 * int(macs), {}, {}


def _thop(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    macs, _ = import_module("thop").profile(positional(model, kwargs), (*args, *kwargs.values()), verbose=False)
    return 2 * int(macs), {}, {}


def _torchinfo(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    device = next(model.parameters()).device
    found = import_module("torchinfo").summary(
        model, input_data=list(args) or dict(kwargs), verbose=0, device=device, **({} if not args else kwargs)
    )
    return 2 * int(found.total_mult_adds), {}, {}


def _deepspeed(model: "nn.Module", args: Arguments, kwargs: Keywords) -> Counts:
    flops, _, _ = import_module("deepspeed.profiling.flops_profiler").get_model_profile(
        model, args=list(args), kwargs=dict(kwargs), print_profile=False, detailed=False, as_string=False, warm_up=0
    )
    return int(flops), {}, {}


COUNTERS: Mapping[str, tuple[str, Counter]] = {  # name -> (module it needs, how it is called)
    "flop_counter": ("torch", _flop_counter),
    "fvcore": ("fvcore", _fvcore),
    "calflops": ("calflops", _calflops),
    "ptflops": ("ptflops", _ptflops),
    "thop": ("thop", _thop),
    "torchinfo": ("torchinfo", _torchinfo),
    "deepspeed": ("deepspeed", _deepspeed),
}


def positional(model: "nn.Module", kwargs: Keywords) -> "nn.Module":
    """A model whose keyword arguments come by position, for counters that know no others."""
    from torch import nn

    names = tuple(kwargs)

    class Positional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: object, **numbered: object) -> object:
            values = given or tuple(numbered.values())
            split = len(values) - len(names)
            result = self.model(*values[:split], **dict(zip(names, values[split:], strict=True)))
            return _first_tensor(result)

    return Positional()


def _first_tensor(result: object) -> object:
    import torch

    if isinstance(result, torch.Tensor):
        return result
    values = result.values() if isinstance(result, Mapping) else result if isinstance(result, Iterable) else ()
    return next((value for value in values if isinstance(value, torch.Tensor)), result)


def _numbered(values: Arguments) -> dict[str, object]:
    return {f"input_{number}": value for number, value in enumerate(values)}


def chosen_counters(names: str) -> tuple[str, ...]:
    """The counters named, or all; raises InputError for an unknown one."""
    wanted = tuple(COUNTERS) if names == "all" else tuple(name.strip() for name in names.split(","))
    unknown = [name for name in wanted if name not in COUNTERS]
    if unknown:
        msg = f"--compare-with: unknown counter {unknown[0]!r}; choose from {', '.join(COUNTERS)}, or all"
        raise InputError(msg)
    return wanted


def count_with(name: str, model: "nn.Module", args: Arguments, kwargs: Keywords) -> PeerCount:
    """Run one counter; whatever goes wrong in it is its result, not ours."""
    needed, counter = COUNTERS[name]
    start = time.perf_counter()
    try:
        import_module(needed)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own; what it counts is what we ask for
            total, by_op, skipped = counter(model, args, kwargs)
    except ImportError as error:
        return _failed(name, f"not installed ({error.name})", start)
    except Exception as error:  # noqa: BLE001 - foreign code: any failure is a finding about it
        words = str(error).strip().splitlines()
        return _failed(name, f"{type(error).__name__}: {words[0][:120] if words else 'no message'}", start)
    seconds = time.perf_counter() - start
    return PeerCount(name=name, total_flops=total, by_op=by_op, skipped=skipped, seconds=seconds)


def _failed(name: str, error: str, start: float) -> PeerCount:
    return PeerCount(
        name=name, total_flops=None, by_op={}, skipped={}, seconds=time.perf_counter() - start, error=error
    )
