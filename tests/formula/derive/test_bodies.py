import pytest

from torchstone.formula.algebra.polynomial import ONE, Polynomial
from torchstone.formula.derive.code_paths import (
    Body,
    Branch,
    Derived,
    InnerCall,
    Part,
    evaluate,
    unknowns_of,
    weights_of,
    without_weights,
)
from torchstone.formula.derive.observe import Cost
from torchstone.formula.derive.op_forms import RefusedError

N, M = Polynomial.unknown("n"), Polynomial.unknown("m")


def derived(name: str, body: Body | Branch, *parameters: str) -> Derived:
    return Derived(class_name=name, body=body, parameters=parameters, switches=(), domain=(), points=8, held_out=2)


LEAF = derived("Leaf", Body(parts=(Part(op="aten.relu.default", forms=(N, N, N)),), inner=(), weights=N), "n")
CALL = InnerCall(class_name="Leaf", count=M, bindings={"n": N * N})
STACK = derived(
    "Stack", Body(parts=(Part(op="aten.add.Tensor", forms=(ONE, N, N)),), inner=(CALL,), weights=M), "n", "m"
)
KNOWN = {"Leaf": LEAF, "Stack": STACK}


def test_inner_calls_are_evaluated_with_their_bindings_and_their_number() -> None:
    assert evaluate(STACK, {"n": 3, "m": 5}, KNOWN) == Cost(flops=1 + 5 * 9, reads=3 + 45, writes=48)
    assert weights_of(STACK, {"n": 3, "m": 5}, KNOWN) == 5 + 45


def test_a_condition_decides_the_way() -> None:
    other = Body(parts=(), inner=(), weights=None)
    forked = derived("Fork", Branch(subject=N, equals=1, yes=other, no=LEAF.body), "n")

    assert evaluate(forked, {"n": 1}, KNOWN) == Cost()
    assert evaluate(forked, {"n": 2}, KNOWN) == Cost(flops=2, reads=2, writes=2)
    assert weights_of(forked, {"n": 1}, KNOWN) is None


def test_a_body_knows_what_it_depends_on() -> None:
    assert unknowns_of(STACK.body) == {"n", "m"}


def test_weights_can_be_taken_away() -> None:
    assert weights_of(derived("Leaf", without_weights(LEAF.body), "n"), {"n": 1}, KNOWN) is None


def test_a_formula_that_is_not_whole_is_refused() -> None:
    half = derived(
        "Half", Body(parts=(Part(op="x", forms=(N * Polynomial.constant(2) ** -1,) * 3),), inner=(), weights=N)
    )

    with pytest.raises(RefusedError, match="not a whole number"):
        evaluate(half, {"n": 3}, {})
