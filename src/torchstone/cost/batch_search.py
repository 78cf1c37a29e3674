"""The largest batch by captures of other batches: one that fits, and one above it that does not.

It is looked for between the two. Where memory grows in proportion, a line through both finds it at once. A model that
pads its rows to a multiple grows in steps, where lines mislead: after two of them the rest is halved, at the roundest
number near the middle, as multiples are round. A model may refuse some batches: it is then looked for among the
multiples of a number that none of them is a multiple of. Where no such number is left it refuses all large ones.
"""

from collections.abc import Callable
from math import isqrt

import msgspec

from torchstone.cost.largest_batch import MOST_BATCHES, BatchRange

_LINES = 2
_MARGIN = 16  # a number is near the middle if it leaves this part of the rest on each side
_FAR = 16  # times the other end
_POWERS = 7  # of two: a model that takes whole groups takes groups of at most 64
_FARTHEST = 64  # times the largest batch that fits, where no line can be drawn


class BatchPeaks(msgspec.Struct, frozen=True):
    """The peak of one batch: with ideal lifetimes, and with those that were observed."""

    ideal: int
    eager: int | None


class BatchSearch:
    """Captures of a model, one after the other, until its largest batch is enclosed or there were enough of them."""

    def __init__(
        self, batch: int, peaks: BatchPeaks, capture: Callable[[int], BatchPeaks | str | None], *, most_captures: int
    ) -> None:
        """`capture` gives the peaks of a batch, why the model refuses it, or None where it is not to be captured."""
        self._batch = batch
        self._known = {batch: peaks}
        self._capture = capture
        self._most_captures = most_captures
        self._ended = False
        self.refused: dict[int, str] = {}  # batch -> why its capture failed

    @property
    def captured(self) -> tuple[int, ...]:
        """The batches that were captured for the answer."""
        return tuple(sorted(one for one in self._known if one != self._batch))

    def enclose(self, memory_bytes: int, guess: int | None, peak_of: Callable[[BatchPeaks], int | None]) -> BatchRange:
        """The range that captures leave, of one number where they suffice; `most` is None where none was too large."""
        lines = 0
        for left in reversed(range(self._most_captures + 1)):
            known = {one: size for one, peaks in self._known.items() if (size := peak_of(peaks)) is not None}
            low = max((one for one, size in known.items() if size <= memory_bytes), default=0)
            high, step = self._above(low, known, memory_bytes), self._step() or 1
            is_done = high is not None and high - low <= step
            if is_done or self._ended or not left or low >= MOST_BATCHES or len(known) < len(self._known):
                break
            if guess is not None and low < guess < (high or guess + 1):
                wanted = guess
            elif high is None:
                wanted = _beyond(known, memory_bytes)
            elif lines < _LINES and low in known and high in known:
                wanted, lines = _on_line(low, high, known, memory_bytes), lines + 1
            else:
                wanted = _round_between(low, high)
            self.take(_on_step(wanted, low, high, step))
        return BatchRange(least=low, most=None if high is None else high - 1)

    def take(self, batch: int) -> bool:
        """Capture a batch; False where there are no peaks of it."""
        found = self._capture(batch)
        if isinstance(found, BatchPeaks):
            self._known[batch] = found
        elif found is None:
            self._ended = True
        else:
            self.refused[batch] = found
        return isinstance(found, BatchPeaks)

    def _above(self, low: int, known: dict[int, int], memory_bytes: int) -> int | None:
        """The smallest batch above one that fits that is known not to, or is refused as all large ones are."""
        refused = self.refused if self._step() is None else ()
        too_large = [one for one, size in known.items() if size > memory_bytes]
        return min((one for one in (*too_large, *refused) if one > low), default=None)

    def _step(self) -> int | None:
        """The smallest number whose multiples the model may all run with; None where no such number is left."""
        numbers = sorted({one << power for one in (1, self._batch) for power in range(_POWERS)})
        return next((one for one in numbers if all(batch % one for batch in self.refused)), None)


def _beyond(known: dict[int, int], memory_bytes: int) -> int:
    """A larger batch than all that fit: on a line through the two largest of them, or far away."""
    *_, before, last = (0, *sorted(known))
    grown = known[last] - known.get(before, known[last])
    if grown <= 0:
        return last * _FARTHEST
    return min(last + max((memory_bytes - known[last]) * (last - before) // grown, 1), last * _FARTHEST)


def _on_line(low: int, high: int, known: dict[int, int], memory_bytes: int) -> int:
    return low + (memory_bytes - known[low]) * (high - low) // (known[high] - known[low])


def _round_between(low: int, high: int) -> int:
    """The number with most factors of two that is not close to either end; of ends far apart, between their powers."""
    if high > _FAR * low > 0:
        return 1 << (isqrt(low * high).bit_length() - 1)
    margin = (high - low) // _MARGIN
    first, last = low + max(margin, 1), high - max(margin, 1)
    if first > last:
        return (low + high) // 2
    power = next(one for one in reversed(range(last.bit_length())) if (last >> one) << one >= first)
    return (last >> power) << power


def _on_step(wanted: int, low: int, high: int | None, step: int) -> int:
    """The multiple of a step next to a batch, between the two ends."""
    first = low - low % step + step
    last = max(wanted, first) if high is None else (high - 1) - (high - 1) % step
    return min(max(wanted - wanted % step, first), max(last, first))
