"""The functions behind `import torchstone as ts` that compose several stages in one call."""

import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.errors import InputError
from torchstone.record.analysis import Analysis
from torchstone.record.check import CheckResult
from torchstone.record.cost import Conventions, CostTable
from torchstone.record.diff import FolderDiff
from torchstone.record.memory import MemoryTimeline
from torchstone.record.reference import Comparison
from torchstone.record.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import nn

    from torchstone.check.settings import Settings
    from torchstone.models.inputs import InputOptions, Inputs
    from torchstone.workflows.cost import Optimizer
    from torchstone.workflows.model_source import ModelAtHand


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """The model behind a trace: a trace has shapes but no weights, and a check needs both."""

    model: "str | nn.Module"
    inputs: "Inputs | None"  # None: generated again from the name and the options
    options: "InputOptions | None"
    at_hand: "ModelAtHand"  # as it was captured
    reuse: bool


# By id() of the trace, for as long as the trace itself is alive: the entry goes with it.
_LIVE: dict[int, _Live] = {}


def trace(
    model: "str | nn.Module",
    inputs: object = None,
    *,
    mode: str = "auto",
    reuse: bool = True,
    backward: bool = False,
    options: "InputOptions | None" = None,
) -> Trace:
    """Capture one forward pass of a model: its modules, op calls and the flow of data between them.

    `model` is a module, or a model name as `torchstone inspect` takes it; `inputs` are its example inputs (a tensor, a
    tuple of positional arguments, or a mapping of keyword arguments), None to generate them. A forward pass that fails
    is recorded in `Trace.failure`; it does not raise.

    >>> import torch, torchstone as ts
    >>> found = ts.trace(torch.nn.Linear(8, 4), torch.ones(2, 8))
    >>> [call.op for call in found.ops]
    ['aten.t.default', 'aten.addmm.default']
    """
    from torchstone.capture.capture_model import About, capture
    from torchstone.models.inputs import InputOptions
    from torchstone.models.load_model import describe_source, load
    from torchstone.models.prepare import check_inputs_match
    from torchstone.workflows.model_source import at_hand_of, built_again, device_for

    chosen = options or InputOptions()
    loaded = load(model, inputs=inputs, options=chosen, device=device_for(mode, chosen))
    check_inputs_match(loaded.model, loaded.inputs)
    about = About(
        model=describe_source(model),
        phase=loaded.inputs.phase,
        inputs=loaded.inputs.origin,
        notes=loaded.inputs.notes,
        materialise=built_again(model, loaded.inputs, chosen, is_generated=inputs is None)
        if isinstance(model, str)
        else None,
    )
    found = capture(loaded.model, loaded.inputs, mode, reuse=reuse, backward=backward, about=about)
    named = isinstance(model, str)
    _LIVE[id(found)] = _Live(
        model=model if named else loaded.model,
        inputs=None if named and inputs is None else loaded.inputs,
        options=chosen if named else None,
        at_hand=at_hand_of(model, loaded.model, loaded.inputs, chosen),
        reuse=reuse,
    )
    weakref.finalize(found, _LIVE.pop, id(found), None)
    return found


def analyze(
    model: "str | nn.Module",
    inputs: object = None,
    folder: str | Path = "analysis",
    *,
    backends: "Sequence[str]" = (),
    hardware: "Sequence[str]" = (),
    quick: bool = False,
) -> Analysis:
    """Answer every question about a model into one folder with one page: structure, cost, check, golden data.

    `model` is a module with its example `inputs`, or a model name. Without `backends` those are checked that are
    installed and fast; `hardware` names the devices that it should fit on. A stage that fails does not stop the others.

    >>> import tempfile, torch, torchstone as ts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = ts.analyze(torch.nn.Linear(8, 4), torch.ones(2, 8), folder, backends=["aot_eager"], quick=True)
    >>> found.headline
    'It runs on aot_eager.'
    """
    from torchstone.workflows.analyze import AnalyzeRequest, analyze_module
    from torchstone.workflows.analyze import analyze as analyze_named
    from torchstone.workflows.model_source import ModelRequest

    name = model if isinstance(model, str) else f"{type(model).__module__}.{type(model).__qualname__}"
    request = AnalyzeRequest(
        model=ModelRequest(model=name),
        folder=Path(folder),
        backends=tuple(backends),
        hardware=tuple(hardware),
        quick=quick,
    )
    if isinstance(model, str):
        if inputs is not None:
            msg = "a model that is given by name has its inputs in its file, or generated ones; drop `inputs`"
            raise InputError(msg)
        return analyze_named(request)
    return analyze_module(model, inputs, trace(model, inputs), request)


def diff(before: str | Path, after: str | Path, folder: str | Path | None = None) -> FolderDiff:
    """Compare what two folders of results both hold: structure, cost, check, golden data and device memory.

    With `folder` the differences and a page with both sides are written there. Raises InputError for folders that have
    nothing in common.

    >>> import tempfile, torch, torchstone as ts
    >>> from pathlib import Path
    >>> from torchstone.record.codec import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, width in (("a", 4), ("b", 6)):
    ...         save(Path(folder, name, "trace.json"), ts.trace(torch.nn.Linear(8, width), torch.ones(2, 8)))
    ...     ts.diff(f"{folder}/a", f"{folder}/b").differs
    True
    """
    from torchstone.workflows.diff import diff_folders

    return diff_folders(Path(before), Path(after), None if folder is None else Path(folder))


@dataclass(frozen=True, slots=True)
class ShownReport:
    """The report of a folder as a notebook displays it: the page in a frame of its own."""

    folder: Path
    height: int

    def _repr_html_(self) -> str:
        from html import escape

        page = (self.folder / "report.html").read_text(encoding="utf-8")
        frame = 'sandbox="allow-scripts allow-downloads" style="width:100%;border:1px solid #ccc"'
        return f'<iframe {frame} height="{self.height}" srcdoc="{escape(page)}"></iframe>'


def show(folder: str | Path, *, height: int = 720) -> ShownReport:
    """Show the report of a folder of results in a notebook, in a frame that loads nothing from the network.

    The report is rendered again from what the folder holds. Traces, costs, checks and comparisons show a table of
    themselves when they are the last value of a cell. Raises InputError for a folder without results.

    >>> import tempfile, torch, torchstone as ts
    >>> from pathlib import Path
    >>> from torchstone.record.codec import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder, "trace.json"), ts.trace(torch.nn.Linear(8, 4), torch.ones(2, 8)))
    ...     shown = ts.show(folder)._repr_html_()
    >>> shown.startswith("<iframe")
    True
    """
    from torchstone.report.render import write_report

    return ShownReport(write_report(Path(folder)).parent, height)


def price(
    trace: Trace,
    *,
    conventions: Conventions | None = None,
    hardware: str | None = None,
    devices: int | None = None,
    optimizer: "Optimizer | None" = None,
) -> CostTable:
    """Compute the FLOPs, bytes and peak memory of a trace, per op, per module and in total.

    `hardware` names a preset or a FILE.toml and adds a predicted time; `devices` splits the matmuls by tensor
    parallelism; `optimizer` adds the optimizer step to a trace with a backward pass. Ops without a price are listed in
    `CostTable.unpriced`. With `hardware`, the largest batch of a trace that `torchstone.trace` returned in this process
    is verified: its model is captured with other batches, on tensors without data. Raises InputError for an unknown
    device.

    >>> import torch, torchstone as ts
    >>> found = ts.trace(torch.nn.Linear(8, 4), torch.ones(2, 8))
    >>> ts.price(found).totals.matmul_flops
    128
    """
    from torchstone.workflows.cost import (
        PricingOptions,
        price_trace,
        with_batches_of_one_capture,
        with_verified_batches,
    )

    options = PricingOptions(
        conventions=conventions or Conventions(), hardware=hardware, devices=devices, optimizer=optimizer
    )
    table = price_trace(trace, options)
    live = _LIVE.get(id(trace))
    if table.prediction is None:
        return table
    if live is None:
        return with_batches_of_one_capture(table, "the model of this trace is not in this process")
    return with_verified_batches(trace, table, options, live.at_hand, reuse=live.reuse)


def check_model(
    model: "str | nn.Module | Trace",
    inputs: object = None,
    *,
    backend: str = "inductor",
    folder: str | Path | None = None,
    settings: "Settings | None" = None,
) -> CheckResult:
    """Find which modules and ops of a model run on a backend, each in a process of its own.

    `model` is a model name, a module with its example `inputs`, or a trace that `torchstone.trace` returned in this
    process. Results, repro scripts and the report are written to `folder` where one is given. `settings` replaces
    `backend` where more than its name matters: options of the backend, limits, tolerances.

    >>> import torch, torchstone as ts
    >>> ts.check_model(torch.nn.Linear(8, 4), torch.ones(2, 8), backend="eager").passed
    True
    """
    from torchstone.workflows import check

    if not isinstance(model, Trace):
        return check.check_model(model, inputs, backend, folder, settings=settings)
    live = _LIVE.get(id(model))
    if live is None:
        msg = "this trace does not come from torchstone.trace here; give check_model the module or model name"
        raise InputError(msg)
    if isinstance(live.model, str):
        return check.check_model(live.model, live.inputs, backend, folder, settings=settings)
    return check.check_model(model, live.inputs, backend, folder, model=live.model, settings=settings)


def compare(
    golden: str | Path,
    outputs: object,
    *,
    pcc: float | None = None,
    partial: bool = False,
    names: "Path | Mapping[str, object] | None" = None,
) -> Comparison:
    """Compare the outputs of a port with the golden data that `make_reference` wrote, tensor by tensor.

    `outputs` is a .safetensors, .npz, .npy, .pt or .tensorbin file, a folder of them, a mapping of names to tensors, or
    what the port returned. `pcc` replaces the minimum PCC to pass. `partial` accepts a port that lacks outputs, or most
    outputs of modules. `names` (a TOML or JSON file, or a mapping) gives golden names for names of the port.

    >>> import tempfile, torch, torchstone as ts
    >>> model, x = torch.nn.Linear(8, 4), torch.ones(2, 8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     golden = ts.make_reference(model, x, folder)
    ...     ts.compare(folder, model(x).detach()).passed
    True
    """
    from torchstone.workflows.reference import CompareRules, compare_with_port

    rules = CompareRules(pcc=pcc, partial=partial, names=names)
    return compare_with_port(golden, outputs, rules=rules)


def read_memory_log(log: "str | Path | Iterable[str | bytes]", *, dialect: str = "", rank: str = "") -> MemoryTimeline:
    """Read device memory over time from a runtime log: a path (plain or gzip), or its lines.

    `dialect` names the log format, found from the log if omitted; `rank` picks one process of a multi-host run. Lines
    that cannot be read are counted in `MemoryTimeline.unread_count`. Raises InputError for a log without runtime lines.

    >>> import torchstone as ts
    >>> ts.read_memory_log(["nothing of a runtime"])
    Traceback (most recent call last):
        ...
    torchstone.errors.InputError: the given text has no runtime lines: ...
    """
    from torchstone.memory.read_log import parse_log

    return parse_log(log, dialect=dialect, rank=rank)
