"""What derivations and validations measure with: capture and prices, brought together."""

from typing import TYPE_CHECKING, Any

from torchstone.errors import MissingExtraError

if TYPE_CHECKING:
    from torchstone.formula.derive.pieces import Pieces
    from torchstone.formula.derive.sampling import Bench
    from torchstone.record.cost import CostTable
    from torchstone.record.op import OpSignature
    from torchstone.record.trace import Trace


def make_bench(needed_for: str) -> "Bench":
    """Captures on tensors without data, priced as `torchstone cost` prices them."""
    from importlib.util import find_spec

    for package, extra in (("torch", "torch"), ("transformers", "hf")):
        if find_spec(package) is None:
            raise MissingExtraError(needed_for=needed_for, extra=extra)
    from torchstone.formula.derive.sampling import Bench

    return Bench(measure=_measure, price=_price, pieces=_pieces)


def _measure(module: Any, inputs: Any) -> "tuple[Trace, CostTable]":
    from torchstone.capture import capture
    from torchstone.cost import price

    trace = capture(module, inputs)
    return trace, price(trace)


def _price(signature: "OpSignature") -> tuple[int, int, int]:
    from torchstone.cost.pricing import price_signature

    price, traffic = price_signature(signature)
    if isinstance(traffic, str):
        return 0, 0, 0
    return price.flops, sum(traffic.reads), sum(traffic.writes)


def _pieces(trace: "Trace") -> "Pieces":
    from torchstone.cost.liveness import lives_of
    from torchstone.cost.storages import find_storages
    from torchstone.formula.derive.pieces import Pieces
    from torchstone.record.cost import Category

    storages = find_storages(trace)
    lives = lives_of(trace, storages)
    counted = [category is not Category.WEIGHTS for category in storages.categories]
    return Pieces(sizes=storages.sizes, first=lives.first, last=lives.last, counted=counted)
