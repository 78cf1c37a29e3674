"""A model at hand -> its largest batch by captures of other batches, in place of one worked out from one capture."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from torchstone.cost.batch_dimension import runs_along
from torchstone.cost.batch_search import BatchPeaks, BatchSearch
from torchstone.cost.largest_batch import MOST_BATCHES, BatchRange, LargestBatches
from torchstone.errors import TorchstoneError
from torchstone.models.inputs import Inputs
from torchstone.record.cost import BatchesByCapture, Peak, Prediction
from torchstone.record.trace import Trace
from torchstone.units import show_bytes
from torchstone.workflows.model_source import ModelAtHand

if TYPE_CHECKING:
    from torch import nn

    from torchstone.models.resize_inputs import ResizableInputs

_MOST_CAPTURES = 20
_FEWEST_CAPTURES = 6  # also of a model with very many ops
_MOST_OPS = 100_000  # of all captures, unless those of the first one are as many
_MOST_GROWN_OPS = 20_000  # of one capture of a model that runs more of them with a larger batch
_MOST_GROWN_TENSORS = 50_000
_MOST_REAL_BYTES = 1 << 28  # that a model makes without an op, by Python or NumPy
_MEASURED_FROM = 4  # times the first batch
_STEP = 16  # from a batch whose memory was measured to the next
_PROCESS = Path("/proc/self/status")
_WITHOUT_DATA = ("fake", "meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuestion:
    """A priced capture, how others are made, and how they are priced."""

    trace: Trace
    prediction: Prediction
    room_bytes: int  # what is left of the memory beside the states of an optimizer
    peak_of: Callable[[Trace], Peak]
    batches_of: Callable[[Trace], LargestBatches]  # as one capture tells them
    reuse: bool = True  # of equal layers
    backward: bool = False

    @property
    def can_be_asked(self) -> bool:
        """Whether memory limits the batch of this model at all, as far as is known."""
        unlimited = (self.prediction.largest_batch or 0) >= MOST_BATCHES
        has_inputs = any(one.kind == "input" for one in self.trace.recorded_tensors.external)
        return has_inputs and self.trace.failure is None and not self.prediction.unsized and not unlimited


def batches_by_capture(question: BatchQuestion, model: ModelAtHand) -> BatchesByCapture:
    """The largest batches that captures of other batches show; a model that refuses them is a note, no error."""
    mode = question.trace.provenance.mode
    rows = max((question.prediction.captured_batch or 1) // model.batch, 1) if model.generate is not None else 1
    if mode not in _WITHOUT_DATA:
        why = f"the model ran on real tensors ({mode}), for which a larger batch may be too large here"
        return not_verified(why, rows)
    try:
        sizings = list(_sizings(model))
    except TorchstoneError as error:
        return not_verified(str(error), rows)
    if not sizings:
        return BatchesByCapture(captured_batch=0)  # the capture says why
    chosen = _along_the_batch([_Captures(question, one) for one in sizings])
    answer = _enclosed(chosen)
    if question.prediction.largest_batch is None and (answer.ideal is None or not _is_of_batch(chosen, model)):
        return BatchesByCapture(captured_batch=0, unknown=_why_unknown(chosen))
    return replace(answer, rows=rows)


def _why_unknown(captures: "_Captures") -> str:
    """Why there is no largest batch where one capture tells none, and others do not, either."""
    dim, first = captures.sizing.dim or 0, captures.sizing.batch
    doubled = captures.trace(2 * first)
    if isinstance(doubled, str):
        sizes = f"{2 * first:,} in place of {first:,} in dimension {dim}"
        return f"with {sizes} of its inputs, the model ends with {doubled}"
    if captures.runs_along():
        return f"dimension {dim} of the inputs is that of a sequence, and no other one was found to be that of a batch"
    return f"dimension {dim} of the inputs is not one of the results, so that it may not be that of a batch"


def _is_of_batch(captures: "_Captures", model: ModelAtHand) -> bool:
    """Whether the dimension of the inputs is one of a batch: as they were generated, or as the outputs have it, too."""
    first = captures.sizing.batch
    traces = {size: captures.trace(size) for size in (first, 2 * first)}
    return model.generate is not None or all(
        isinstance(one, Trace) and size in _output_sizes(one) for size, one in traces.items()
    )


def _output_sizes(trace: Trace) -> set[int]:
    """The sizes of the results of the model in their first two dimensions."""
    results = trace.recorded_calls.outputs[0] if len(trace.recorded_calls) else ()
    return {size for number in results for size in trace.held_spec(number).shape[:2]}


def not_verified(why: str, rows: int = 1) -> BatchesByCapture:
    """No answer by captures, and why."""
    note = f"the largest batch is worked out from one capture, not verified by others: {why}"
    return BatchesByCapture(captured_batch=0, notes=(note,), rows=rows)


# --- The captures ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizing:
    """How the inputs are made for another batch."""

    batch: int  # of the first capture
    dim: int | None  # of the first input; None: not one dimension
    make: "Callable[[int], tuple[nn.Module, Inputs]]"


def _sizings(model: ModelAtHand) -> Iterator[_Sizing]:
    """Ways to make inputs for another batch: as they were generated, else along the first or second dimension."""
    from torchstone.models.resize_inputs import by_comparison, by_dimension

    def resized(inputs: "ResizableInputs") -> "Callable[[int], tuple[nn.Module, Inputs]]":
        return lambda batch: (model.model, inputs.resized(batch))

    if model.generate is not None:
        compared = by_comparison(model.inputs, model.batch, model.generate(2 * model.batch)[1])
        if compared is None:
            yield _Sizing(batch=model.batch, dim=None, make=model.generate)
        else:
            dims = compared.first_dims()
            yield _Sizing(batch=model.batch, dim=dims[0] if len(dims) == 1 else None, make=resized(compared))
        return
    for dim in (0, 1):
        found = by_dimension(model.inputs, dim)
        if found is not None:
            yield from (_Sizing(batch=found[0], dim=dim, make=resized(one)) for one in found[1])


class _Captures:
    """Captures of a model along one sizing, with what bounds their number."""

    def __init__(self, question: BatchQuestion, sizing: _Sizing) -> None:
        self.question = question
        self.sizing = sizing
        self.omitted = ""  # why one was not made
        self._traces: dict[int, Trace | str] = {sizing.batch: question.trace}
        self._used_bytes: dict[int, int] = {}  # at most so far, after the capture of a batch

    def trace(self, batch: int) -> Trace | str:
        """The capture of a batch, or why there is none."""
        if batch not in self._traces:
            found = self._traces[batch] = self._capture(batch)
            if isinstance(found, Trace) and batch >= _MEASURED_FROM * self.sizing.batch:
                self._used_bytes[batch] = _most_used_bytes()
        return self._traces[batch]

    def peaks(self, batch: int) -> BatchPeaks | str | None:
        """The peaks of a batch, why the model refuses it, or None where it is not to be captured."""
        self.omitted = self._too_much(batch)
        if self.omitted:
            return None
        found = self.trace(batch)
        if isinstance(found, str):
            return found
        peak = self.question.peak_of(found)
        if peak.unsized:
            self.omitted = f"the size of a tensor is not known with a batch of {batch:,}"
            return None
        return BatchPeaks(peak.total_bytes, peak.eager_bytes)

    def runs_along(self) -> bool:
        """Whether the tokens of a sequence lie along the dimension of the batch."""
        doubled = self.trace(2 * self.sizing.batch)
        return isinstance(doubled, Trace) and runs_along(self.question.trace, doubled, self.sizing.batch)

    def most(self) -> int:
        """How many captures are made; few of a model with very many ops."""
        return min(max(_MOST_OPS // max(len(self.question.trace.recorded_ops), 1), _FEWEST_CAPTURES), _MOST_CAPTURES)

    def _capture(self, batch: int) -> Trace | str:
        from torchstone.capture.capture_model import capture

        question = self.question
        mode = question.trace.provenance.mode
        try:
            model, inputs = self.sizing.make(batch)
            trace = capture(model, inputs, mode, reuse=question.reuse, backward=question.backward)
        except TorchstoneError as error:
            return str(error)
        return trace if trace.failure is None else trace.failure.error

    def _too_much(self, batch: int) -> str:
        """Why a batch is not captured: its ops, its tensors or the memory of its capture would be too many or much."""
        first, second = 2 * self.sizing.batch, _MEASURED_FROM * self.sizing.batch
        if batch <= second:
            return ""
        before, after = self.trace(first), self.trace(second)  # a batch of 1 may take a way of its own
        if not isinstance(before, Trace) or not isinstance(after, Trace):
            return ""
        times = batch / first - 1
        for name, most in (("op", _MOST_GROWN_OPS), ("tensor", _MOST_GROWN_TENSORS)):
            ran, more = getattr(before.size, name), getattr(after.size, name) - getattr(before.size, name)
            if more > 0 and ran + more * times > max(most, 2 * ran):
                return f"the model makes more {name}s with a larger batch, too many with {batch:,}"
        if (_real_bytes(after) - _real_bytes(before)) * times > _MOST_REAL_BYTES:
            return f"the model makes more memory without an op with a larger batch, too much with {batch:,}"
        return self._too_large(batch)

    def _too_large(self, batch: int) -> str:
        """Why the capture of a batch may not fit in memory: masks have values there, and models compute with them.

        It is measured at smaller batches, of which each is a bounded step above the one before.
        """
        while batch > _STEP * max(self._used_bytes):
            larger = _STEP * max(self._used_bytes)
            why = self._out_of_memory(larger)
            if why or isinstance(self.trace(larger), str):
                return why
        return self._out_of_memory(batch)

    def _out_of_memory(self, batch: int) -> str:
        from torchstone.models.prepare import free_bytes

        first, last = min(self._used_bytes), max(self._used_bytes)
        grown = (self._used_bytes[last] - self._used_bytes[first]) * batch // last
        free = free_bytes()
        return f"a capture of {batch:,} may take {show_bytes(grown)}" if free is not None and grown > free // 2 else ""


def _most_used_bytes() -> int:
    """The most memory that this process has had at a time; 0 where the system does not report it."""
    if _PROCESS.is_file():
        for line in _PROCESS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _real_bytes(trace: Trace) -> int:
    """Memory that was there without an op, and is neither of the model nor of its inputs."""
    held = [trace.held_spec(one.tensor) for one in trace.recorded_tensors.external if one.kind == "constant"]
    return sum(spec.size_bytes or 0 for spec in held)


def _along_the_batch(captures: list[_Captures]) -> _Captures:
    """The first dimension, unless it is that of a sequence, and the second one is not."""
    ran = [one for one in captures if isinstance(one.trace(2 * one.sizing.batch), Trace)]
    if not ran or ran[0].sizing.dim or not ran[0].runs_along():
        return ran[0] if ran and not ran[0].sizing.dim else captures[0]
    return next((one for one in ran if not one.runs_along()), ran[0])


def _enclosed(captures: _Captures) -> BatchesByCapture:
    """Both ends by captures; that of twice the first batch mostly tells them exactly."""
    question, first = captures.question, captures.sizing.batch
    peak = question.peak_of(question.trace)
    search = BatchSearch(
        first, BatchPeaks(peak.total_bytes, peak.eager_bytes), captures.peaks, most_captures=captures.most()
    )
    if not search.take(2 * first) and not search.take(first + 1):
        return BatchesByCapture(captured_batch=first, is_fixed=True, notes=(_no_batch(first, search),))
    second = captures.trace(2 * first)
    claims = question.batches_of(second) if isinstance(second, Trace) else LargestBatches()
    # A sample may be several rows of the first input; claims of another dimension are of no use.
    rows = 0 if captures.sizing.dim else (claims.captured or 0) // (2 * first)
    ideal = search.enclose(question.room_bytes, _samples(claims.ideal, rows), lambda peaks: peaks.ideal)
    if ideal.most is None:
        is_refused = _refusal(min(search.refused), search) if search.refused else ""
        return not_verified(captures.omitted or is_refused or "none was found that does not fit")
    eager = search.enclose(question.room_bytes, _samples(claims.eager, rows), lambda peaks: peaks.eager)
    ideal = search.enclose(question.room_bytes, None, lambda peaks: peaks.ideal)  # by the captures of both
    return BatchesByCapture(
        captured_batch=first,
        captures=search.captured,
        ideal=_both(ideal),
        eager=_both(eager) if peak.eager_bytes is not None else None,
        notes=(*([_refusal(min(search.refused), search)] if search.refused else ()), *_dimension_note(captures)),
    )


def _samples(claimed: BatchRange, rows: int) -> int | None:
    return claimed.least // rows if claimed.least and rows else None


def _both(found: BatchRange) -> tuple[int, int] | None:
    return None if found.least is None or found.most is None else (found.least, found.most)


def _refusal(batch: int, search: BatchSearch) -> str:
    return f"a batch of {batch:,} ends with {search.refused[batch]}"


def _no_batch(first: int, search: BatchSearch) -> str:
    why = search.refused[2 * first]
    return f"there is no largest batch: with {2 * first:,} in place of {first:,}, the model ends with {why}"


def _dimension_note(captures: _Captures) -> tuple[str, ...]:
    if not captures.sizing.dim:
        return ()
    return ("the batch is the second dimension of the inputs: the first one is that of a sequence",)
