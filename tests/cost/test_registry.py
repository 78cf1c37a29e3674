from typing import cast

import pytest

from tests.cost.calls import signature, spec
from torchstone.cost import Price, register_price
from torchstone.cost.price_trace import price_signature
from torchstone.cost.registry import find_price, forget_price, price_of, priced_ops
from torchstone.errors import InputError
from torchstone.record.cost import Kind
from torchstone.record.op import OpSignature


def test_a_second_price_for_an_op_is_refused() -> None:
    with pytest.raises(InputError, match=r"aten\.mm has a price already"):
        price_of("aten.mm", kind=Kind.MATMUL)(lambda _: Price())


def test_a_custom_op_is_priced_by_its_decorator_in_either_spelling() -> None:
    @register_price("mylib::twice")
    def twice(call: OpSignature) -> Price:
        return Price(flops=call.output_specs[0].elements)

    try:
        found, traffic = price_signature(signature("mylib.twice.default", spec(2, 3), x=spec(2, 3)))
    finally:
        forget_price("mylib::twice")
    assert twice(signature("mylib.twice.default", spec(4))).flops == 4
    assert not isinstance(traffic, str)
    assert (found.flops, traffic.reads, traffic.writes, traffic.kind) == (6, (24,), (24,), Kind.CUSTOM)
    assert find_price("mylib.twice.default") is None


def test_an_overload_of_its_own_comes_before_the_price_of_all_overloads() -> None:
    reduce, compare = find_price("aten.max.dim"), find_price("aten.max.other")
    assert reduce is not None
    assert compare is not None
    assert (reduce.kind, compare.kind) == (Kind.REDUCTION, Kind.POINTWISE)


def test_an_in_place_op_takes_the_price_of_its_functional_twin() -> None:
    assert find_price("aten.relu_.default") == find_price("aten.relu.default")


def test_every_name_in_the_table_can_be_found() -> None:
    assert all(find_price(name) or find_price(f"{name}.default") for name in priced_ops())
    assert len(priced_ops()) > 400


def test_every_core_op_and_every_pointwise_op_of_torch_has_a_price() -> None:
    import torch

    wanted = (torch.Tag.core, torch.Tag.pointwise)
    unpriced = []
    for name in torch._C._dispatch_get_all_op_names():
        library, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if library != "aten" or overload == "out":
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if op is not None and any(tag in op.tags for tag in wanted) and find_price(str(op)) is None:
            unpriced.append(str(op))
    assert unpriced == []


@pytest.mark.parametrize(
    ("gives", "message"), [(5, "gave 5; a price function returns a Price"), (None, "stops with ZeroDivisionError")]
)
def test_a_price_from_outside_that_fails_is_named(gives: int | None, message: str) -> None:
    def mine(_call: OpSignature) -> Price:
        return cast("Price", gives or 1 // 0)

    register_price("mylib::failing")(mine)
    try:
        with pytest.raises(InputError, match=rf"the price of mylib.failing.default \(mine\) {message}"):
            price_signature(signature("mylib.failing.default", spec(4), x=spec(4)))
    finally:
        forget_price("mylib::failing")
