import pytest

from tests.cost.calls import several, signature, spec
from torchstone.cost import registry
from torchstone.cost.registry import NoPriceError

CALL = signature("lib.op.default", spec(2), x=spec(2, 3), many=several(spec(1), None, spec(4)), dim=3, on=True)


def test_arguments_come_in_the_type_that_is_wanted() -> None:
    assert registry.tensor(CALL, "y", "x") == spec(2, 3)
    assert registry.tensors(CALL, "many") == (spec(1), spec(4))
    assert registry.whole(CALL, "dim") == 3
    assert registry.numbers(CALL, "dim") == (3,)
    assert registry.flag(CALL, "on")
    assert registry.output(CALL) == spec(2)


def test_what_is_not_there_is_none_where_it_may_be() -> None:
    assert registry.optional_tensor(CALL, "y") is None
    assert registry.numbers(CALL, "x") is None
    assert registry.tensors(CALL, "x") == ()
    assert not registry.flag(CALL, "off")


def test_what_must_be_there_has_no_price_without() -> None:
    with pytest.raises(NoPriceError, match=r"lib\.op\.default has no tensor y or z"):
        registry.tensor(CALL, "y", "z")
    with pytest.raises(NoPriceError, match="got x="):
        registry.whole(CALL, "x")
    with pytest.raises(NoPriceError, match="gave no tensor"):
        registry.output(signature("lib.op.default", None))
