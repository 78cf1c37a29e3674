import pytest
from hypothesis import given

from tests.formula.expressions import expressions
from torchstone.formula.database.latex import latex
from torchstone.formula.language.expression import Expression
from torchstone.formula.language.parse import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * B * S**2", "2 B S^{2}"),
        ("2 * 5 * B", r"2 \cdot 5 B"),
        ("hidden_size - 3", r"\mathrm{hidden\_size} - 3"),
        ("a / (b + 1)", r"\frac{a}{b + 1}"),
        ("a // b", r"\left\lfloor \frac{a}{b} \right\rfloor"),
        ("a % 8", r"a \bmod 8"),
        ("(a + b) * c", r"\left(a + b\right) c"),
        ("(a / b)**2", r"\left(\frac{a}{b}\right)^{2}"),
        ("4.5 * a", r"\frac{9}{2} a"),
        ("ceil(a / 2)", r"\left\lceil \frac{a}{2} \right\rceil"),
        ("max(a, b)", r"\max\left(a, b\right)"),
        ("ceil_log2(n)", r"\left\lceil \log_2 n \right\rceil"),
        ("{torch.nn.Linear}(a, out=b)", r"\mathrm{Linear}\left(a, \mathrm{out}=b\right)"),
        ("a if b <= 3 and not c else 0",
         r"\begin{cases} a & \text{if } b \le 3 \text{ and } \lnot c \\ 0 & \text{otherwise} \end{cases}"),
        ("a - b * c", "a - b c"),
        ("-a", "-a"),
    ],
)  # fmt: skip
def test_a_formula_is_written_as_in_a_paper(text: str, expected: str) -> None:
    assert latex(parse(text)) == expected


@given(expressions)
def test_brackets_are_balanced_whatever_the_formula(tree: Expression) -> None:
    text = latex(tree)

    assert text.count(r"\left") == text.count(r"\right")
    assert text.count("{") == text.count("}")
