"""Distances from the float64 result -> a noise floor, and an error as a multiple of it.

One number does not describe an error. Six are measured: the root mean square (RMS), the largest element, a common
factor (gain), a common offset, and for every dimension the RMS of each of its slices, so that one wrong token, head or
channel is not lost among the correct ones, and their median, so that a few slices with much noise (a token that went to
another expert, a channel that is large) do not hide an error in all others. Each is divided by what correct
implementations had, and the largest quotient is the multiple that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log, sqrt

import torch
from torch import Tensor

from torchstone.numerics.number_formats import float_format, smallest, spacing

_SYSTEMATIC = 0.5  # a common factor or offset of half the noise is legal: kernels may round towards zero
_ALIKE_STEPS = 4  # values within so few steps are rounded to the same few numbers
_ROUNDING = 1 / sqrt(12)  # the RMS of rounding, in steps
_ASSUMED_STEPS = {"float64": 64.0, "float32": 64.0, "float16": 8.0}  # noise where none was measured, in steps
_ASSUMED_STEPS_NARROW = 3.0
_LEAST_OF_A_SLICE = 1 / 16  # of the RMS: where a few channels are large, the others have less noise than the mean
_ENOUGH_SLICES = 8  # for a median
_MOST_ASSUMED = 0.1  # relative noise: however coarse a format is, more must be measured to be believed


@dataclass(frozen=True)
class Deviation:
    """How far one result is from the float64 one, in units of the values."""

    rms: float
    largest: float
    gain: float  # the factor minus 1 that explains most of the error
    offset: float
    slices: tuple[Tensor, ...]  # for each dimension: the RMS of each slice
    elements: int
    scale: float  # the RMS of the float64 values
    top: float  # their largest magnitude
    dims: tuple[int, ...] = ()  # the dimensions of `slices`: those with more than one element
    lost: float = 0.0  # the RMS of float64 values that a format may round to 0: below its normal numbers
    lost_top: float = 0.0  # the largest of them
    varied: float = inf  # the standard deviation of the float64 values
    typical: tuple[float, ...] = ()  # for each of `dims`: the median of `slices`
    scales: tuple[Tensor, ...] = ()  # for each of `dims`: the RMS of the float64 values in each slice


@dataclass(frozen=True)
class NoiseFloor:
    """What correct implementations in one number format were off."""

    format: str
    basis: str  # measured, or why it is not
    samples: int
    rms: float
    largest: float
    gain: float
    offset: float
    slices: tuple[Tensor, ...]
    spread: tuple[float, ...]  # for each dimension: how far a slice of a correct result was above `slices`
    typical: tuple[
        float, ...
    ] = ()  # for each dimension: the median of the slices, which a few large ones do not change

    def scaled(self, factor: float, number_format: str) -> NoiseFloor:
        """The floor of another format by the ratio of their steps, since first-order errors grow with the step."""
        return NoiseFloor(
            format=number_format,
            basis=f"scaled from {self.format}",
            samples=self.samples,
            rms=self.rms * factor,
            largest=self.largest * factor,
            gain=self.gain * factor,
            offset=self.offset * factor,
            slices=tuple(one * factor for one in self.slices),
            spread=self.spread,
            typical=tuple(one * factor for one in self.typical),
        )


@dataclass(frozen=True)
class Multiple:
    """An error in multiples of the noise, and which of the measures it is."""

    value: float
    measure: str  # "RMS", "largest element", "common factor", "common offset", "slice 3 of dimension 1"
    relative_error: float | None  # RMS of the error over RMS of the values; None where those are 0
    relative_noise: float | None


def deviation(
    reference: Tensor, actual: Tensor, counted: Tensor | None = None, *, limit: float = inf, number_format: str = ""
) -> Deviation:
    """Measure a result against float64 values of the same shape.

    `counted` says which elements count. Elements that are not finite never do, nor those beyond `limit`: the constants
    of masks, such as -3.4e38, whose rounding would hide every other error. `number_format` is the one of the result,
    where its dtype does not say so.
    """
    number_format = number_format or float_format(actual.dtype)
    reference, actual = _real(reference), _real(actual)
    error = actual - reference
    usable = error.isfinite() & (reference.abs() < limit)
    if counted is not None:
        usable &= counted.reshape([*counted.shape] + [1] * (error.dim() - counted.dim()))
    elements = int(usable.sum())
    if not elements:
        return Deviation(0.0, 0.0, 0.0, 0.0, (), 0, 0.0, 0.0)
    if elements < error.numel():
        error, reference = torch.where(usable, error, 0.0), torch.where(usable, reference, 0.0)
    unit = float(error.abs().max()) or 1.0  # squares neither overflow nor vanish
    top = float(reference.abs().max())
    small, values = error / unit, reference / (top or 1.0)
    squares = small.square()
    power = float(values.square().sum())
    dims = tuple(dim for dim in range(error.dim()) if error.shape[dim] > 1)
    lost, lost_top = _lost(reference, elements, smallest(number_format))
    slices = tuple(unit * _slice_rms(squares, usable, dim) for dim in dims)
    return Deviation(
        rms=unit * sqrt(float(squares.sum()) / elements),
        largest=unit * float(small.abs().max()),
        gain=abs(float((small * values).sum())) * unit / (power * (top or 1.0)) if power else 0.0,
        offset=abs(float(small.sum())) / elements * unit,
        slices=slices,
        elements=elements,
        scale=top * sqrt(power / elements),
        top=top,
        dims=dims,
        lost=lost,
        lost_top=lost_top,
        typical=tuple(float(one.median()) for one in slices),
        scales=tuple(top * _slice_rms(values.square(), usable, dim) for dim in dims),
        varied=(top or 1.0) * sqrt(max(0.0, power / elements - (float(values.sum()) / elements) ** 2)),
    )


def _lost(reference: Tensor, elements: int, tiny: float) -> tuple[float, float]:
    """The RMS over all elements, and the largest, of values below the normal numbers: devices round them to 0."""
    below = torch.where(reference.abs() < tiny, reference.abs() / tiny, 0.0)
    return tiny * sqrt(float(below.square().sum()) / elements), tiny * float(below.max())


def floor_of(samples: Sequence[Deviation], number_format: str, basis: str = "measured") -> NoiseFloor:
    """The floor that some correct results had; a result that is rounded once is always correct."""
    step, scale = spacing(number_format), max(one.scale for one in samples)
    tiny = smallest(number_format) * step  # the smallest number above 0
    rounding = max(step * _ROUNDING * scale, tiny, *(one.lost for one in samples))
    rms = max(rounding, *(one.rms for one in samples))
    top = max(one.top for one in samples)
    # Values that are nearly equal are rounded alike: their common factor and offset are all of the rounding.
    alike = max(one.varied for one in samples) < _ALIKE_STEPS * step * scale
    systematic = rms * (1.0 if alike else _SYSTEMATIC)
    lost_top = max(one.lost_top for one in samples)
    usual_top = rms * max(1.0, sqrt(2 * log(max(1, samples[0].elements))))  # the largest of that many normal numbers
    slices, spread = _slice_floors(samples, rms, step * _ROUNDING)
    return NoiseFloor(
        format=number_format,
        basis=basis,
        samples=len(samples),
        rms=rms,
        largest=max(step * top / 2, usual_top, lost_top, *(one.largest for one in samples)),
        gain=max(systematic / scale if scale else inf, *(one.gain for one in samples)),
        offset=max(systematic, *(one.offset for one in samples)),
        slices=slices,
        spread=spread,
        typical=tuple(
            max(step * _ROUNDING * float(samples[0].scales[place].median()), tiny, lost_top, *errors)
            for place, errors in enumerate(zip(*(one.typical for one in samples), strict=True))
        ),
    )


def assumed_floor(values: Deviation, number_format: str, reason: str) -> NoiseFloor:
    """A floor from the number format alone, where the code cannot be run."""
    steps = _ASSUMED_STEPS.get(number_format, _ASSUMED_STEPS_NARROW)
    relative = min(steps * spacing(number_format) * _ROUNDING, _MOST_ASSUMED)
    rms = max(relative * values.scale, values.lost, smallest(number_format) * spacing(number_format))
    return NoiseFloor(
        format=number_format,
        basis=f"assumed from {number_format}: {reason}",
        samples=0,
        rms=rms,
        largest=max(relative / _ROUNDING * values.top, values.lost_top, rms),
        gain=rms / values.scale if values.scale else inf,
        offset=rms,
        slices=(),
        spread=(),
    )


def multiple_of(found: Deviation, floor: NoiseFloor) -> Multiple:
    """How many times the noise an error is; few elements say less than many, which each quotient allows for."""
    if not found.elements:
        return Multiple(0.0, "no element", None, None)
    unsure = 1 + 1 / sqrt(found.elements)
    measures = [
        (found.rms / floor.rms / unsure, "RMS"),
        (found.largest / floor.largest / unsure, "largest element"),
        (found.gain / floor.gain / unsure, "common factor"),
        (found.offset / floor.offset / unsure, "common offset"),
    ]
    for place, (slices, spread) in enumerate(zip(floor.slices, floor.spread, strict=True)):
        if place < len(found.slices) and found.slices[place].shape == slices.shape:
            over, where = (found.slices[place] / slices).max(0)
            unsure = 1 + 2 / sqrt(max(1.0, found.elements / len(slices)))
            measures.append((float(over) / spread / unsure, f"slice {int(where)} of dimension {found.dims[place]}"))
    for place, typical in enumerate(floor.typical):
        if place < len(found.typical) and len(found.slices[place]) >= _ENOUGH_SLICES:
            quotient = found.typical[place] / typical / (1 + 2 / sqrt(len(found.slices[place])))
            measures.append((quotient, f"typical slice of dimension {found.dims[place]}"))
    value, measure = max((value if isfinite(value) else inf, name) for value, name in measures)
    scale = found.scale
    return Multiple(
        value=value,
        measure=measure,
        relative_error=found.rms / scale if scale else None,
        relative_noise=floor.rms / scale if scale else None,
    )


def _slice_rms(squares: Tensor, usable: Tensor, dim: int) -> Tensor:
    others = [other for other in range(squares.dim()) if other != dim]
    if not others:
        return squares.sqrt()
    return (squares.sum(others) / usable.sum(others).clamp_min(1)).sqrt()


def _slice_floors(
    samples: Sequence[Deviation], rms: float, rounding: float
) -> tuple[tuple[Tensor, ...], tuple[float, ...]]:
    """For each dimension the RMS of its slices over all samples, and how far single samples were above the others.

    Noise is not spread evenly: a token whose expert changes has much of it in one run and none in another. What a slice
    of one sample had over the mean of the others is what a correct candidate may have, too.
    """
    floors, spreads = [], []
    for place, dim in enumerate(zip(*(one.slices for one in samples), strict=True)):
        in_slice = max(1.0, samples[0].elements / len(dim[0]))
        least = max(rms * max(_LEAST_OF_A_SLICE, 1 / sqrt(in_slice)), *(one.lost_top for one in samples))
        rounded = (samples[0].scales[place] * rounding).clamp_min(least)  # a result that is rounded once is correct
        squares = torch.stack(tuple(dim)).square()
        mean = squares.mean(0).sqrt().maximum(rounded)
        others = (squares.sum(0, keepdim=True) - squares) / max(1, len(samples) - 1)
        over = (squares.sqrt() / others.sqrt().maximum(rounded)).max() if len(samples) > 1 else torch.tensor(1.0)
        floors.append(mean)
        spreads.append(max(1.0, float(over)))
    return tuple(floors), tuple(spreads)


def _real(tensor: Tensor) -> Tensor:
    """Float64 values with at least one dimension; a complex number is two."""
    tensor = torch.view_as_real(tensor.to(torch.complex128).resolve_conj()) if tensor.is_complex() else tensor.double()
    return tensor.reshape(1) if tensor.dim() == 0 else tensor
