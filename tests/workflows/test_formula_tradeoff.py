"""A formula on a device: what fits, and where compute-bound turns memory-bound."""

import pytest

from torchstone.cost.roofline import find_hardware
from torchstone.errors import FormulaError, InputError
from torchstone.formula.database.compute import compute
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.record.formula import Quantity, TradeOff
from torchstone.workflows.formula_tradeoff import TradeOffRequest, trade_off

SHIPPED = Formulas(entries=load_shipped().modules)
MODEL = "LlamaForCausalLM"
SIZES = {
    "hidden_size": 4096, "num_heads": 32, "num_kv_heads": 8, "intermediate_size": 14336, "num_hidden_layers": 32,
    "vocab_size": 128256,
}  # fmt: skip
H100 = find_hardware("h100")


def solved(parameter: str, *, devices: int = 1, memory_bytes: int | None = None, **sizes: int) -> TradeOff:
    request = TradeOffRequest(
        name=MODEL,
        parameters={**SIZES, **sizes},
        parameter=parameter,
        hardware=H100,
        devices=devices,
        memory_bytes=memory_bytes,
    )
    return trade_off(request, SHIPPED)


def used(**sizes: int) -> tuple[int, int]:
    weights, live = (
        compute(SHIPPED, MODEL, one, {**SIZES, **sizes}) for one in (Quantity.WEIGHTS, Quantity.INTERMEDIATES)
    )
    return int(weights), int(live)


@pytest.mark.parametrize(("parameter", "others"), [("B", {"S": 2048}), ("S", {"B": 4})])
def test_the_largest_value_fits_and_the_next_does_not(parameter: str, others: dict[str, int]) -> None:
    found = solved(parameter, **others)

    assert found.fits is not None
    assert sum(used(**others, **{parameter: found.fits})) <= H100.memory_bytes
    assert sum(used(**others, **{parameter: found.fits + 1})) > H100.memory_bytes
    assert next(one for one in found.points if one.value == found.fits).memory_bytes <= H100.memory_bytes
    assert found.points[-1].memory_bytes > H100.memory_bytes


def test_the_number_of_layers_can_be_the_unknown() -> None:
    sizes = {name: size for name, size in SIZES.items() if name != "num_hidden_layers"}
    request = TradeOffRequest(
        name=MODEL, parameters={**sizes, "B": 1, "S": 128}, parameter="num_hidden_layers", hardware=H100
    )
    found = trade_off(request, SHIPPED)

    assert found.fits is not None
    assert sum(used(B=1, S=128, num_hidden_layers=found.fits)) <= H100.memory_bytes
    assert sum(used(B=1, S=128, num_hidden_layers=found.fits + 1)) > H100.memory_bytes


def test_devices_share_the_weights_but_not_the_activations() -> None:
    weights, live = used(B=8, S=2048)
    room = weights // 4 + live + 1
    found = solved("TP", B=8, S=2048, memory_bytes=room)

    assert found.fits == 4
    assert [one.memory_bytes <= room for one in found.points] == [one.value >= 4 for one in found.points]
    alone, shared = solved("B", S=2048).fits, solved("B", S=2048, devices=4).fits
    assert alone is not None
    assert shared is not None
    assert shared > alone


def test_a_limit_that_nothing_fits_has_no_value() -> None:
    assert solved("B", S=2048, memory_bytes=1 << 20).fits is None


def test_the_turning_point_is_the_first_value_on_its_side() -> None:
    """A short prompt reads the weights for few tokens: memory-bound. A longer one reuses them: compute-bound."""
    found = solved("S", B=1)
    assert [bound for _, bound in found.bounds] == ["memory", "compute"]
    first = found.bounds[1][0]

    def compute_is_longer(length: int) -> bool:
        given = {**SIZES, "B": 1, "S": length}
        flops, reads, writes = (
            compute(SHIPPED, MODEL, one, {**given, **({} if one is Quantity.FLOPS else {"dtype_bytes": 2})})
            for one in (Quantity.FLOPS, Quantity.READS, Quantity.WRITES)
        )
        return flops / H100.peak_flops["bfloat16"] > (reads + writes) / H100.memory_bytes_per_s

    assert compute_is_longer(first)
    assert not compute_is_longer(first - 1)


def test_what_cannot_be_placed_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="h100 has no rate for elements of 3 bytes"):
        solved("B", S=16, dtype_bytes=3)
    request = TradeOffRequest(name="MLP", parameters={}, parameter="B", hardware=H100)
    with pytest.raises(FormulaError, match="give values for"):
        trade_off(request, SHIPPED)
