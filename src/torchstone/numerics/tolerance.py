"""How far an output may be off: options of the user and defaults by dtype -> the tolerance of one tensor.

Importable without torch: dtypes are names here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import sqrt

from torchstone.numerics.dtypes import COMPLEX, FLOAT, kind_of

DEFAULT_PCC = 0.99
NAMES = ("pcc", "relative_l2", "rtol", "atol")
_BY_DTYPE = "by_dtype"
_CLOSE = {  # rtol, atol of allclose: those of torch.testing, and for 8 bits one step of the mantissa
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    "float8_e4m3fn": (0.125, 1e-5),
    "float8_e5m2": (0.25, 1e-5),
}
_EXACT = (0.0, 0.0)


@dataclass(frozen=True)
class Tolerance:
    """What one tensor is judged by."""

    pcc: float  # at least
    relative_l2: float  # at most: PCC does not see a wrong scale or offset, this does
    rtol: float  # of allclose, by dtype
    atol: float
    exact: bool = False  # integers and booleans must be equal

    def as_dict(self) -> dict[str, float | bool]:
        """As JSON."""
        return asdict(self)

    def limits(self) -> dict[str, float]:
        """The numbers of NAMES alone."""
        return {name: float(value) for name, value in asdict(self).items() if name in NAMES}


@dataclass(frozen=True)
class ToleranceOptions:
    """What the user asked for, of NAMES; what is not asked for is decided by dtype."""

    usual: Mapping[str, float] = field(default_factory=dict)
    by_dtype: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of the expected output; wins

    def asked(self, dtype: str) -> dict[str, float]:
        """What was asked for an expected output of this dtype."""
        return {**self.usual, **self.by_dtype.get(dtype, {})}


NO_OPTIONS = ToleranceOptions()
OptionsLike = ToleranceOptions | Mapping[str, object] | None


def read_options(given: OptionsLike) -> ToleranceOptions:
    """Options from JSON: numbers under NAMES, and the same by dtype under "by_dtype"."""
    if given is None:
        return NO_OPTIONS
    if isinstance(given, ToleranceOptions):
        return given
    by_dtype = given.get(_BY_DTYPE, {})
    if not isinstance(by_dtype, Mapping):
        msg = f"tolerance {_BY_DTYPE}: {by_dtype!r} is not a table; write {{'bfloat16': {{'pcc': 0.97}}}}"
        raise TypeError(msg)
    usual = {name: value for name, value in given.items() if name != _BY_DTYPE}
    return ToleranceOptions(_numbers(usual), {str(dtype): _numbers(table) for dtype, table in by_dtype.items()})


def _numbers(table: object) -> dict[str, float]:
    if not isinstance(table, Mapping):
        msg = f"tolerance: {table!r} is not a table; write {{'pcc': 0.98}}"
        raise TypeError(msg)
    unknown = [name for name in table if name not in NAMES]
    if unknown:
        msg = f"unknown tolerance {unknown[0]!r}; there are {', '.join(NAMES)}"
        raise ValueError(msg)
    return {name: float(value) for name, value in table.items()}


def tolerance_for(expected: str, actual: str, options: ToleranceOptions = NO_OPTIONS) -> Tolerance:
    """The tolerance for two dtypes: what was asked for, else the wider one of theirs; integers must be equal.

    Noise that brings PCC down to p makes a relative L2 error of about sqrt(1 - p * p). Twice that is allowed: more is
    not noise but a wrong scale or offset, which PCC cannot see.
    """
    asked = options.asked(expected)
    pairs = [_CLOSE.get(name, _EXACT) for name in (expected, actual)]
    rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    rtol, atol = asked.get("rtol", rtol), asked.get("atol", atol)
    pcc = asked.get("pcc", DEFAULT_PCC)
    exact = kind_of(expected) not in (FLOAT, COMPLEX)
    return Tolerance(
        pcc=pcc,
        relative_l2=asked.get("relative_l2", max(2 * sqrt(max(0.0, 1 - pcc * pcc)), rtol)),
        rtol=0.0 if exact else rtol,
        atol=0.0 if exact else atol,
        exact=exact,
    )


def limits_by_dtype(options: ToleranceOptions = NO_OPTIONS) -> dict[str, dict[str, float]]:
    """The numbers for every dtype that has some of its own, and under "float" those for the others."""
    return {name: tolerance_for(name, name, options).limits() for name in (*_CLOSE, FLOAT)}
