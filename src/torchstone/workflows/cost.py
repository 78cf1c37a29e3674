"""A model -> its trace and costs: FLOPs, bytes, peak memory; on request, predicted time, devices and optimizer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from torchstone.errors import InputError, TorchstoneError, require_package
from torchstone.foreign import foreign_code
from torchstone.record.cost import BatchesByCapture, Conventions, CostTable
from torchstone.record.trace import Checkpoint, Trace
from torchstone.workflows.model_source import (
    FoundTrace,
    ModelAtHand,
    ModelRequest,
    capture_key,
    find_trace,
    saved_trace,
)
from torchstone.workflows.progress import SILENT, Progress

if TYPE_CHECKING:
    from torchstone.workflows.batch_captures import BatchQuestion

Logits = Literal["all", "last"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw"]
_FEWEST_DEVICES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PricingOptions:
    """How a trace is priced, and what is predicted beside its cost.

    Raises InputError for fewer than two devices and for an unknown optimizer.
    """

    conventions: Conventions = field(default_factory=Conventions)
    hardware: str | None = None  # a preset or FILE.toml: predict the time by its roofline
    devices: int | None = None  # tensor parallelism: split the matmuls over this number of devices, 2 or more
    optimizer: Optimizer | None = None  # needs a trace with a backward pass

    def __post_init__(self) -> None:
        """Refuse values that the command line does not accept."""
        if self.devices is not None and self.devices < _FEWEST_DEVICES:
            msg = f"--tp splits the matmuls over {_FEWEST_DEVICES} devices or more, not {self.devices}"
            raise InputError(msg)
        if self.optimizer not in (None, *get_args(Optimizer)):
            msg = f"unknown optimizer {self.optimizer!r}; choose from {', '.join(get_args(Optimizer))}"
            raise InputError(msg)


DEFAULT_PRICING = PricingOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRequest:
    """A model, how to price it, and which other counters to run on it.

    Raises InputError for an unknown value of `logits`.
    """

    model: ModelRequest
    pricing: PricingOptions = DEFAULT_PRICING
    logits: Logits | None = None  # None: as the model does by default
    prices: Path | None = None  # a Python file that prices custom ops with @register_price; it is executed
    compare_with: str | None = None  # names of other counters, separated by commas, or "all"
    plan: Path | None = None  # the folder or mapping.json of `torchstone map`: its memory plan beside the roofline
    python: str | None = None  # an environment with ttnn: the plan is made now; "": that of `torchstone ttnn setup`

    def __post_init__(self) -> None:
        """Refuse values that the command line does not accept."""
        if (self.plan is not None or self.python is not None) and self.pricing.hardware is None:
            msg = f"{'--plan' if self.plan is not None else '--python'} requires --hardware, such as n150"
            raise InputError(msg)
        if self.logits not in (None, *get_args(Logits)):
            msg = f"--logits must be {' or '.join(get_args(Logits))}, not {self.logits!r}"
            raise InputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOutcome:
    """The trace of a run, and its costs: FLOPs, bytes and predicted seconds."""

    trace: Trace
    table: CostTable


def cost_model(request: CostRequest, progress: Progress = SILENT) -> CostOutcome:
    """Capture a model, or read its saved trace, and price it.

    A forward pass that fails is part of the trace (`trace.failure`), ops without a price are part of the table
    (`table.unpriced`): neither raises. Raises InputError for options that exclude each other, and ModelError for a
    model that cannot be loaded.
    """
    if request.compare_with is not None:
        return _cost_beside_peers(request, request.compare_with, progress)
    trace, table = _priced(request, progress)
    return CostOutcome(trace=trace, table=_with_plan(table, trace, request, progress))


def _priced(request: CostRequest, progress: Progress) -> tuple[Trace, CostTable]:
    """The trace of a request and its costs, with the largest batch verified where the model is at hand."""
    found = _find_priced_trace(request, progress)
    options = as_shipped(found.trace, pricing_of(request))
    table = price_trace(found.trace, options)
    if table.prediction is None:
        return found.trace, table
    if found.at_hand is not None:
        return found.trace, _with_batches(request, found.trace, table, found.at_hand, progress)
    rows = (table.prediction.captured_batch or 1) if found.is_sample else 1
    return found.trace, with_batches_of_one_capture(table, found.why_not, rows)


def with_batches_of_one_capture(table: CostTable, why: str, rows: int = 1) -> CostTable:
    """The table with a note that its largest batches are not verified, and why; `rows` of an input are one sample."""
    from torchstone.workflows.batch_captures import not_verified

    captured = table.prediction.captured_batch if table.prediction else None
    if captured and captured > rows:  # a sample may be several rows, as the patches of an image are
        why = f"{why}; it counts rows of the first input, {captured:,} in this run"
    return _with_answer(table, not_verified(why, rows))


def _with_batches(
    request: CostRequest, trace: Trace, table: CostTable, at_hand: Callable[[], ModelAtHand], progress: Progress
) -> CostTable:
    """The table with the largest batches by captures, or as they were found for an equal question."""
    from torchstone.workflows.batch_captures import batches_by_capture, not_verified
    from torchstone.workflows.capture_cache import keep_batches, kept_batches, state_of_sources

    options = as_shipped(trace, pricing_of(request))
    question = _question(trace, table, options, reuse=request.model.reuse)
    if not question.can_be_asked:
        return table
    key = capture_key(request.model, logits_keywords(request.logits))
    prices = (str(request.prices), request.prices.stat().st_mtime_ns) if request.prices else None
    state = repr(
        (options, question.room_bytes, question.prediction.hardware, prices, state_of_sources("cost", "workflows"))
    )
    kept = kept_batches(key, state) if request.model.cached else None
    if kept is not None:
        return _with_answer(table, kept)
    try:
        model = at_hand()
    except TorchstoneError as error:
        return _with_answer(table, not_verified(str(error)))
    with progress.step("verifying the largest batch"):
        answer = batches_by_capture(question, model)
    keep_batches(key, state, answer)
    return _with_answer(table, answer)


def with_verified_batches(
    trace: Trace, table: CostTable, options: PricingOptions, model: ModelAtHand, *, reuse: bool = True
) -> CostTable:
    """The table with the largest batches that captures of other batches show."""
    from torchstone.workflows.batch_captures import batches_by_capture

    question = _question(trace, table, options, reuse=reuse)
    return _with_answer(table, batches_by_capture(question, model)) if question.can_be_asked else table


def _question(trace: Trace, table: CostTable, options: PricingOptions, *, reuse: bool) -> "BatchQuestion":
    """What captures of other batches are asked, and how they are priced: as the first one was."""
    from torchstone.cost import price
    from torchstone.cost.formats import with_formats
    from torchstone.cost.largest_batch import LargestBatches, largest_batches
    from torchstone.workflows.batch_captures import BatchQuestion

    if table.prediction is None:
        msg = "only what has a device has a largest batch"
        raise AssertionError(msg)
    formats = options.conventions.formats
    conventions = msgspec.structs.replace(options.conventions, tile=table.prediction.hardware.tile)
    states_bytes = table.optimiser.state_bytes if table.optimiser else 0
    room_bytes = table.prediction.hardware.memory_bytes - states_bytes

    def batches_of(other: Trace) -> LargestBatches:
        stored = with_formats(other, formats)
        return largest_batches(stored, price(stored, conventions), room_bytes)

    return BatchQuestion(
        trace=trace,
        prediction=table.prediction,
        room_bytes=room_bytes,
        peak_of=lambda other: price(with_formats(other, formats), conventions).peak,
        batches_of=batches_of,
        reuse=reuse,
        backward=trace.recorded_ops.forward_calls != trace.size.op,
    )


def _with_answer(table: CostTable, answer: BatchesByCapture) -> CostTable:
    """The table with the largest batches of captures."""
    if table.prediction is None:
        return table
    return msgspec.structs.replace(table, prediction=table.prediction.with_batches(answer))


def _with_plan(table: CostTable, trace: Trace, request: CostRequest, progress: Progress) -> CostTable:
    """The table with the memory that the model takes on a board, where that is known or asked for."""
    hardware = request.pricing.hardware
    if table.prediction is None or hardware is None:
        return table
    from torchstone.workflows.memory_plan import beside_estimate, plan_beside, plan_for_hardware, read_plan

    if request.plan is not None:
        mapping = read_plan(request.plan)
    elif request.python is not None:
        mapping = plan_for_hardware(trace, hardware, request.python, progress)
    else:
        known = plan_beside(request.model.model, hardware)
        if known is None:
            return table
        mapping = known
    if mapping.model != trace.provenance.model:
        msg = f"the plan is of {mapping.model}, not of {trace.provenance.model}; give the one of this model"
        raise InputError(msg)
    loose = table.prediction.peak_bytes - sum(table.peak.padding.values())  # the plan has tiles of its own
    plan = beside_estimate(mapping, loose)
    return msgspec.structs.replace(table, prediction=msgspec.structs.replace(table.prediction, plan=plan))


def _cost_beside_peers(request: CostRequest, names: str, progress: Progress) -> CostOutcome:
    from torchstone.workflows.cost_peers import chosen_peers, compare_with_peers

    peers = chosen_peers(request.model, names)  # refuses unknown names before the model is captured
    trace, table = _priced(request, progress)
    comparison = compare_with_peers(table, request.model, peers, progress)
    return CostOutcome(trace=trace, table=msgspec.structs.replace(table, comparison=comparison))


def price_trace(trace: Trace, options: PricingOptions = DEFAULT_PRICING) -> CostTable:
    """Price a trace that is in memory, with everything that the options request.

    Raises InputError for an unknown device, and for an optimizer without a backward pass.
    """
    from torchstone.cost import price
    from torchstone.cost.formats import file_notes, format_notes, with_formats

    formats = options.conventions.formats
    stored = with_formats(trace, formats)
    if options.hardware is not None or options.optimizer or options.devices:
        table = _with_predictions(stored, options)
    else:
        table = price(stored, options.conventions)
    notes = (*format_notes(trace, formats), *file_notes(trace, formats, table.totals.parameter_bytes))
    return msgspec.structs.replace(table, notes=(*table.notes, *notes)) if notes else table


def _with_predictions(trace: Trace, options: PricingOptions) -> CostTable:
    from torchstone.cost import price
    from torchstone.cost.optimizer import optimiser_cost
    from torchstone.cost.roofline import find_hardware, one_of_several, predict
    from torchstone.cost.scaling import split_over

    hardware = None if options.hardware is None else find_hardware(options.hardware)
    if options.optimizer and trace.recorded_ops.forward_calls == trace.size.op and trace.failure is None:
        msg = "--optimizer belongs to a training step, but no backward pass was recorded; add --backward"
        raise InputError(msg)
    tile = hardware.tile if hardware else None
    table = price(trace, msgspec.structs.replace(options.conventions, tile=tile))
    optimizer = optimiser_cost(trace, options.optimizer) if options.optimizer else None
    # The optimizer's states occupy memory during the whole step, so they decide whether the model fits.
    states_bytes = optimizer.state_bytes if optimizer else 0
    prediction = predict(trace, table, hardware, states_bytes=states_bytes) if hardware else None
    split = None
    if options.devices:
        # A split is over the devices that a preset takes as one, not over several of the whole.
        several = hardware is not None and hardware.devices > 1
        one = predict(trace, table, one_of_several(hardware)) if hardware and several else prediction
        split = split_over(trace, table, options.devices, one, options.optimizer)
        if hardware is not None and several and options.devices > hardware.devices:
            note = f"{hardware.name} has {hardware.devices} chips; the links to further ones are taken to be as fast"
            split = msgspec.structs.replace(split, notes=(*split.notes, note))
    return msgspec.structs.replace(table, prediction=prediction, tensor_parallel=split, optimiser=optimizer)


def as_shipped(trace: Trace, options: PricingOptions) -> PricingOptions:
    """The options with the formats of the published checkpoint, where the trace is one of it and none are asked for."""
    from torchstone.cost.formats import PUBLISHED

    formats = options.conventions.formats
    table = trace.recorded_tensors
    dtypes = {table.specs[table.spec_of[one.tensor]].dtype for one in table.external if one.kind == "parameter"}
    stored = trace.checkpoint or _of_the_zoo(trace.provenance.model)
    if stored is None or formats.weights is not None or stored.dtype not in dtypes:
        return options
    source = PUBLISHED
    if trace.checkpoint is not None:  # a file says what it says, and whether there is more to it is not known
        if not stored.quantization:
            return options
        source = f"{PUBLISHED}: {stored.quantization}"
        if stored.weights is None:
            source = f"not as published: {stored.quantization} is not priced; give --weights"
    shipped = msgspec.structs.replace(
        formats,
        weights=stored.weights,
        only=stored.only,
        source=f"{formats.source}; weights {source}" if formats.source else source,
    )
    return replace(options, conventions=msgspec.structs.replace(options.conventions, formats=shipped))


def _of_the_zoo(model: str) -> Checkpoint | None:
    from torchstone.models.zoo.catalogue import find_entry

    entry = find_entry(model)
    if entry is None or not isinstance(entry.config.get("dtype"), str):
        return None
    weights, only = (entry.quantization.weights, entry.quantization.only) if entry.quantization else (None, ())
    return Checkpoint(dtype=str(entry.config["dtype"]), weights=weights, only=only)


def load_priced_trace(request: CostRequest, progress: Progress = SILENT) -> Trace:
    """Load the trace of a request, its custom prices registered; raises as `load_trace` and `register_prices` do."""
    return _find_priced_trace(request, progress).trace


def _find_priced_trace(request: CostRequest, progress: Progress) -> FoundTrace:
    if request.prices is not None:
        require_prices(request.prices)
        if saved_trace(request.model.model) is None:
            require_package("torch", needed_for="loading a model")
        progress.note(f"executing {request.prices} ...")
        register_prices(request.prices)
    return find_trace(request.model, progress, keywords=logits_keywords(request.logits))


def pricing_of(request: CostRequest) -> PricingOptions:
    """The pricing options of a request, with the cache length and logits of its run among the conventions."""
    conventions = msgspec.structs.replace(
        request.pricing.conventions,
        cache_len=request.model.options.cache_len,
        block_size=request.model.options.paged_block,
        logits=request.logits or "as captured",
    )
    return replace(request.pricing, conventions=conventions)


def logits_keywords(logits: Logits | None) -> dict[str, object]:
    """The keyword argument by which transformers models limit their logits; 0 stands for all."""
    return {} if logits is None else {"logits_to_keep": 1 if logits == "last" else 0}


def require_prices(path: Path) -> None:
    """Raise InputError where there is no such file."""
    if not path.is_file():
        msg = f"cannot read {path}, given with --prices; give a Python file that uses @register_price"
        raise InputError(msg)


def register_prices(path: Path) -> None:
    """Execute the user's file, which registers its prices; an unchanged file is executed once per process.

    Raises InputError for a missing file, and where the file raises.
    """
    require_prices(path)
    _execute_prices(path.resolve(), path.stat().st_mtime_ns)


@cache
def _execute_prices(path: Path, _changed_ns: int) -> None:
    # The registry refuses a second price for an op, so that a repeated request must not execute the file again.
    with foreign_code(passing=(InputError,)) as ran:  # the user's code may raise anything
        run_path(str(path))
    if ran.error is not None:
        msg = f"{path}, given with --prices, raised {type(ran.error).__name__}: {ran.error}"
        raise InputError(msg) from ran.error


def write_costs(folder: Path, outcome: CostOutcome, progress: Progress = SILENT) -> None:
    """Write trace.json, unique_modules.json, cost.json and the report; raises InputError where that is not possible."""
    from torchstone.workflows.result_folder import COST_FILE, write_trace

    write_trace(folder, outcome.trace, progress, documents={COST_FILE: outcome.table})
