import pytest

from torchstone.formula.codegen.generated.base import GeneratedModule
from torchstone.formula.codegen.generated.exact import Value


class Net(GeneratedModule):
    path = "pkg.Net"
    variant = "eager"
    status = "validated"
    parameters = {"flops": ("n",), "reads": ("n", "dtype_bytes")}

    @staticmethod
    def flops(*, n: Value) -> Value:
        return 2 * n

    @staticmethod
    def reads(*, n: Value, dtype_bytes: Value) -> Value:
        return n * dtype_bytes


def test_a_quantity_takes_the_parameters_it_has() -> None:
    assert Net.compute("flops", {"n": 3, "dtype_bytes": 2}) == 6
    assert Net.compute("reads", {"n": 3, "dtype_bytes": 2}) == 6
    assert Net.name() == "pkg.Net[eager]"


def test_unknown_parameters_and_quantities_are_refused() -> None:
    with pytest.raises(TypeError, match=r"pkg\.Net\[eager\] has no parameter x"):
        Net.compute("flops", {"x": 1})
    with pytest.raises(LookupError, match="has no formula for writes"):
        Net.compute("writes", {"n": 1})
