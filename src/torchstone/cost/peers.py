"""Other FLOP counters run on the same model, and why each reports a different number."""

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.foreign import foreign_code
from torchstone.record.cost import CostTable, Difference, PeerCount

if TYPE_CHECKING:
    from torch import nn

# Why another counter says something else: op by op where it tells them apart, by what is known of it otherwise.


_MOST_OPS = 10  # of which every choice is tried
_OURS_TO_THEIRS = {  # names that differ between dispatch and older traces
    "mm": "linear matmul mm",
    "addmm": "linear addmm",
    "bmm": "bmm matmul einsum",
    "convolution": "conv _convolution convolution",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "native_layer_norm": "layer_norm",
    "native_batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
}


def differences(table: CostTable, by_op: Mapping[str, int], skipped: Mapping[str, int]) -> tuple[Difference, ...]:
    """Every op of ours with another count over there, and every op of theirs that we count as no matmul."""
    found = []
    theirs_of = {_packet(op): flops for op, flops in by_op.items()}
    ours_of = _matmul_flops(table)
    for group in _groups(ours_of, theirs_of):
        ours = sum(ours_of.get(name, 0) for name in group)
        theirs = sum(theirs_of.get(name, 0) for name in group)
        if ours != theirs:
            name = " + ".join(sorted(one for one in group if ours_of.get(one) or theirs_of.get(one)))
            found.append(Difference(op=name, ours=ours, theirs=theirs, reason=_reason(ours, theirs, group, skipped)))
    return tuple(sorted(found, key=lambda one: -abs(one.ours - one.theirs)))


def _matmul_flops(table: CostTable) -> dict[str, int]:
    """Each op's matmul FLOPs, a multiply-add as two whatever the table counts."""
    flops: dict[str, int] = {}
    for row in table.ops:
        packet = _packet(row.op)
        flops[packet] = flops.get(packet, 0) + row.matmul_flops * 2 // table.conventions.multiply_add
    return flops


def inferred(table: CostTable, total: int) -> str:
    """What the total of a counter that tells no ops looks like: our matmuls but some, and a little other arithmetic."""
    flops = {name: count for name, count in _matmul_flops(table).items() if count}
    ours, other = sum(flops.values()), table.totals.flops - table.totals.matmul_flops
    names = sorted(flops, key=lambda name: -flops[name])[:_MOST_OPS]
    best: tuple[int, tuple[str, ...]] | None = None
    for count in range(max(len(names), 1)):  # one op at least is counted
        for left_out in combinations(names, count):
            over = total - ours + sum(flops[name] for name in left_out)
            if 0 <= over <= other and (best is None or over < best[0]):
                best = (over, left_out)
    if best is None:
        return "tells no ops, and no choice of ops gives its total: it counts by layers, or otherwise"
    over, left_out = best
    but = f" but {' and '.join(f'{name} ({flops[name]:,})' for name in left_out)}" if left_out else ""
    more = f", and {over:,} FLOPs of other arithmetic" if over else ""
    return f"tells no ops; its total equals that of all matmuls{but}{more}"


def _groups(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[set[str]]:
    """Ops that may be one another's other name, taken together."""
    groups: list[set[str]] = []
    for name in dict.fromkeys((*ours, *theirs)):
        if not ours.get(name) and not theirs.get(name):
            continue
        names = {name, *_OURS_TO_THEIRS.get(name, "").split()}
        touching = [group for group in groups if group & names]
        for group in touching:
            groups.remove(group)
            names |= group
        groups.append(names)
    return groups


def _reason(ours: int, theirs: int, group: set[str], skipped: Mapping[str, int]) -> str:
    skipped_here = [name for name in skipped if _packet(name) in group]
    if theirs == 0 and skipped_here:
        return "not counted, and it says so"
    if theirs == 0:
        return "not counted, and it does not say so"
    if ours == 0:
        return "counted there as arithmetic of another kind than matmul"
    if ours == 2 * theirs:
        return "half: it counts multiply-adds"
    if theirs == 2 * ours:
        return "double"
    return "counted otherwise"


def _packet(op: str) -> str:
    """aten.mm.default, aten::mm and mm are the same op."""
    name = op.replace("::", ".").removeprefix("aten.")
    return name.split(".")[0]


# Other FLOP counters on the same model -> what each reports, in FLOPs. A counter runs as its own documentation shows.
# Those that count multiply-adds are doubled, so that all compare.


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


def missing(name: str) -> PeerCount | None:
    """The result of a counter that is not installed, known without a process for it; None for one that is."""
    package = COUNTERS[name][0].partition(".")[0]
    return None if find_spec(package) is not None else _failed(name, f"not installed ({package})", time.perf_counter())


def count_with(name: str, model: "nn.Module", args: Arguments, kwargs: Keywords) -> PeerCount:
    """Run one counter; whatever goes wrong in it is its result, not ours."""
    needed, counter = COUNTERS[name]
    start = time.perf_counter()
    with foreign_code() as ran:  # foreign code: any failure is a finding about it
        import_module(needed)
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own; what it counts is what we ask for
            total, by_op, skipped = counter(model, args, kwargs)
    if isinstance(ran.error, ImportError):
        return _failed(name, f"not installed ({ran.error.name})", start)
    if ran.error is not None:
        words = str(ran.error).strip().splitlines()
        return _failed(name, f"{type(ran.error).__name__}: {words[0][:120] if words else 'no message'}", start)
    seconds = time.perf_counter() - start
    return PeerCount(name=name, total_flops=total, by_op=by_op, skipped=skipped, seconds=seconds)


def _failed(name: str, error: str, start: float) -> PeerCount:
    return PeerCount(
        name=name, total_flops=None, by_op={}, skipped={}, seconds=time.perf_counter() - start, error=error
    )
