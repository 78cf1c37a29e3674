import pytest

from tests.cost.calls import several, signature, spec
from torchstone.cost import arguments
from torchstone.cost.registry import NoPriceError

CALL = signature("lib.op.default", spec(2), x=spec(2, 3), many=several(spec(1), None, spec(4)), dim=3, on=True)


def test_arguments_come_in_the_type_that_is_wanted() -> None:
    assert arguments.tensor(CALL, "y", "x") == spec(2, 3)
    assert arguments.tensors(CALL, "many") == (spec(1), spec(4))
    assert arguments.whole(CALL, "dim") == 3
    assert arguments.numbers(CALL, "dim") == (3,)
    assert arguments.flag(CALL, "on")
    assert arguments.output(CALL) == spec(2)


def test_what_is_not_there_is_none_where_it_may_be() -> None:
    assert arguments.optional_tensor(CALL, "y") is None
    assert arguments.numbers(CALL, "x") is None
    assert arguments.tensors(CALL, "x") == ()
    assert not arguments.flag(CALL, "off")


def test_what_must_be_there_has_no_price_without() -> None:
    with pytest.raises(NoPriceError, match=r"lib\.op\.default has no tensor y or z"):
        arguments.tensor(CALL, "y", "z")
    with pytest.raises(NoPriceError, match="got x="):
        arguments.whole(CALL, "x")
    with pytest.raises(NoPriceError, match="gave no tensor"):
        arguments.output(signature("lib.op.default", None))
