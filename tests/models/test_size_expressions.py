import pytest

from torchstone.models.size_expressions import is_arithmetic


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2))",
        "Mul(Float('0.5', precision=53), Pow(Symbol('u0'), Integer(-1)))",
        "4*s26",
        "s0**2 - 1",
        "Max(1, s0 // 2) >= 4 and s1 % 8 == 0",
    ],
)
def test_what_sympy_prints_for_sizes_is_arithmetic(text: str) -> None:
    assert is_arithmetic(text, with_tensors=False)


def test_guards_may_ask_inputs_for_their_sizes() -> None:
    guard = "L['x'].size()[0] % 4 == 0"

    assert is_arithmetic(guard, with_tensors=True)
    assert not is_arithmetic(guard, with_tensors=False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1; 2",
        "__import__('os').system('x')",
        "exec('x')",
        "Symbol('__import__(1)')",
        "Float('exec(1)')",
        "Max(1, 'x')",
        "(lambda: 1)()",
        "[one for one in s0]",
        "s0.__class__",
        "L['x'].__class__",
        "L['x'].size.__globals__",
        "L['x'].size()()",
        "L['it\\'s'].size()",
        "f'{s0}'",
        "(s0 := 1)",
        "Symbol(name='x' + 'y')",
        "Max(*s0)",
        "Max(**s0)",
        "_x",
        "9**9**9",
        "Pow(9, Pow(9, 9))",
        "Pow(9, 9, 9)",
        "1 + " * 10_000 + "1",
        "(" * 9_000 + ")" * 9_000,
    ],
)
def test_anything_else_is_not(text: str) -> None:
    assert not is_arithmetic(text, with_tensors=True)
