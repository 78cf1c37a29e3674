import pytest

from torchstone.formula.derive.code_paths import Condition, Fork, Leaf, leaves, split_by_path
from torchstone.formula.derive.observe import Observation
from torchstone.formula.derive.op_forms import RefusedError
from torchstone.formula.derive.parameter_binding import CallParameters


def seen(way: str, batch: int = 2, dtype_bytes: int = 4, *, bias: bool = False) -> Observation:
    reading = CallParameters(sizes={"B": batch}, facts={"bias": bias}, dtype_bytes=dtype_bytes)
    return Observation(class_name="net.Class", path=way, parameters=reading, held_out=False, point={"B": batch})


def way(one: Observation) -> str:
    return one.path


def test_calls_that_go_the_same_way_are_one_leaf() -> None:
    tree = split_by_path([seen("a"), seen("a", bias=True)], way)

    assert isinstance(tree, Leaf)


def test_a_switch_that_tells_the_ways_apart_is_found() -> None:
    tree = split_by_path([seen("a", bias=True), seen("b"), seen("b", batch=1)], way)

    assert isinstance(tree, Fork)
    assert tree.condition == Condition("bias", 1)
    assert [len(leaf.observations) for leaf in leaves(tree)] == [1, 2]


def test_several_conditions_are_nested() -> None:
    calls = [seen("a"), seen("b", batch=1), seen("c", dtype_bytes=2), seen("d", batch=1, dtype_bytes=2)]

    assert len(leaves(split_by_path(calls, way))) == 4


def test_ways_that_no_parameter_tells_apart_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"net\.Class runs different ops at equal parameters \(a and b\)"):
        split_by_path([seen("a"), seen("b")], way)
