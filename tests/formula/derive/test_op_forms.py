import pytest

from tests.cost.calls import signature, spec
from tests.formula.derive.benches import bench
from torchstone.formula.derive.database_entries import text_of
from torchstone.formula.derive.observe import Cost, PricedOp, numbers_in
from torchstone.formula.derive.op_forms import Fitter, RefusedError, cost_of, op_forms

POINTS = [{"m": 3, "k": 7, "n": 11}, {"m": 5, "k": 13, "n": 17}, {"m": 2, "k": 19, "n": 23}, {"m": 29, "k": 3, "n": 31}]


def seen(m: int, k: int, n: int, *, more: int = 0) -> PricedOp:
    call = signature("aten.mm.default", spec(m, n), self=spec(m, k), mat2=spec(k, n))
    flops, reads, writes = bench().price(call)
    return PricedOp(
        signature=call,
        cost=Cost(flops=flops + more, reads=reads, writes=writes),
        numbers=tuple(numbers_in(call)),
    )


def test_the_price_of_fitted_sizes_is_the_formula() -> None:
    forms = op_forms([seen(**point) for point in POINTS], [4] * 4, Fitter(POINTS), bench().price)

    assert [text_of(form) for form in forms] == [
        "2 * ${k} * ${m} * ${n}",
        "4 * ${k} * ${m} + 4 * ${k} * ${n}",
        "4 * ${m} * ${n}",
    ]
    assert cost_of(forms, POINTS[0]) == seen(**POINTS[0]).cost


def test_costs_that_the_price_does_not_give_are_refused_with_their_op() -> None:
    calls = [seen(**point, more=number**3) for number, point in enumerate(POINTS)]

    with pytest.raises(RefusedError, match=r"flops of aten\.mm\.default"):
        op_forms(calls, [4] * 4, Fitter(POINTS), bench().price)
