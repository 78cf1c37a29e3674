"""Which function prices which op: a table that refuses a second price for the same op."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature


class Price(Record, frozen=True, kw_only=True):
    """What one call of an op costs; a multiply-add is two FLOPs."""

    flops: int = 0
    matmul_flops: int = 0  # the part of `flops` done by matrix multiplication
    causal_flops: int = 0  # the part of `matmul_flops` that is halved when causal attention counts half
    reads: tuple[int, ...] | None = None  # bytes read of each input; None: all of each input, once
    writes: tuple[int, ...] | None = None  # bytes written to each output; None: all of each output, once


class NoPriceError(Exception):
    """A call that its price function cannot price; the message says why."""


PriceFunction = Callable[[OpSignature], Price]
F = TypeVar("F", bound=PriceFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A price function and the family of its ops."""

    function: PriceFunction
    kind: Kind


_PRICES: dict[str, Entry] = {}


def price_of(*ops: str, kind: Kind) -> Callable[[F], F]:
    """Register a price function for ops: `aten.mm` for all overloads, `aten.sum.dim_IntList` for one alone."""

    def register(function: F) -> F:
        for op in ops:
            name = _dotted(op)
            if name in _PRICES:
                msg = f"{name} has a price already ({_PRICES[name].function.__module__}); an op has one price only"
                raise InputError(msg)
            _PRICES[name] = Entry(function=function, kind=kind)
        return function

    return register


def register_price(*ops: str, kind: Kind = Kind.CUSTOM) -> Callable[[F], F]:
    """Price custom ops: `@register_price("mylib::my_op")` above a function from OpSignature to Price."""

    def register(function: F) -> F:
        price_of(*ops, kind=kind)(_answerable(function))
        return function

    return register


def _answerable(function: PriceFunction) -> PriceFunction:
    """A price from outside that fails says whose it is."""

    def priced(call: OpSignature) -> Price:
        try:
            found: object = function(call)
        except (NoPriceError, InputError):
            raise
        except Exception as error:  # the user's code may raise anything
            msg = f"the price of {call.op} ({function.__name__}) stops with {type(error).__name__}: {error}"
            raise InputError(msg) from error
        if not isinstance(found, Price):
            msg = f"the price of {call.op} ({function.__name__}) gave {found!r}; a price function returns a Price"
            raise InputError(msg)
        return found

    return priced


def find_price(op: str) -> Entry | None:
    """The price of an op overload: its own, or that of all its overloads, or that of its functional twin."""
    packet = op.rpartition(".")[0]
    functional = packet.removesuffix("_")
    return _PRICES.get(op) or _PRICES.get(packet) or _PRICES.get(functional)


def priced_ops() -> tuple[str, ...]:
    """All names that have a price."""
    return tuple(sorted(_PRICES))


def forget_price(op: str) -> None:
    """Take a price back, so that another can be given."""
    _PRICES.pop(_dotted(op), None)


def _dotted(op: str) -> str:
    return op.replace("::", ".")
