import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.language.expression import (
    Binary,
    Call,
    Choose,
    Compare,
    Connective,
    Logical,
    Negate,
    Not,
    Number,
    Operator,
    Parameter,
    Product,
    Relation,
    Sum,
)
from torchstone.formula.language.parse import MAX_CHARACTERS, Kind, TemplateError, is_parameter_name, parse, read_tokens
from torchstone.formula.language.print import show

A, B, C = Parameter("a"), Parameter("b"), Parameter("c")


def test_sums_and_products_are_flat_lists() -> None:
    assert parse("a + b - c") == Sum((A, B, Negate(C)))
    assert parse("a * b * c") == Product((A, B, C))


def test_brackets_are_kept() -> None:
    assert parse("(a + b) + c") == Sum((Sum((A, B)), C))


def test_division_is_grouped_from_the_left() -> None:
    assert parse("a * b // c") == Binary(Operator.FLOOR_DIVIDE, Product((A, B)), C)
    assert parse("a / b / c") == Binary(Operator.DIVIDE, Binary(Operator.DIVIDE, A, B), C)


def test_powers_are_grouped_from_the_right_and_bind_tighter_than_a_sign() -> None:
    assert parse("a ** b ** c") == Binary(Operator.POWER, A, Binary(Operator.POWER, B, C))
    assert parse("-a ** 2") == Negate(Binary(Operator.POWER, A, Number(2)))
    assert parse("-2 ** 2") == Negate(Binary(Operator.POWER, Number(2), Number(2)))
    assert parse("2 ** -1") == Binary(Operator.POWER, Number(2), Number(-1))


def test_numbers_are_exact() -> None:
    assert parse("4.5") == Number(Fraction(9, 2))
    assert parse("-1/3") == Number(Fraction(-1, 3))
    assert parse("a * 1/3") == Binary(Operator.DIVIDE, Product((A, Number(1))), Number(3))
    assert parse("0.1") == Number(Fraction(1, 10))


def test_a_choice_reads_as_in_python() -> None:
    tree = parse("a if b % 2 == 0 else b if c else 1")

    assert tree == Choose(
        Compare(Relation.EQUAL, Binary(Operator.MODULO, B, Number(2)), Number(0)), A, Choose(C, B, Number(1))
    )


def test_conditions_are_joined_as_in_python() -> None:
    tree = parse("not a and b or c")

    assert tree == Logical(Connective.OR, (Logical(Connective.AND, (Not(A), B)), C))


def test_a_call_takes_positional_and_named_arguments() -> None:
    tree = parse("{torch.nn.Linear}(a * b, out=c)")

    assert tree == Call("torch.nn.Linear", (Product((A, B)),), (("out", C),))


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("", "expected a number, a parameter or a bracket, found the end", 1),
        ("a +", "expected a number, a parameter or a bracket, found the end", 4),
        ("a b", "expected an operator, found 'b'", 3),
        ("(a", "expected '\\)', found the end", 3),
        ("a < b < c", "comparisons cannot be chained", 7),
        ("{Net}", "expected '\\('", 6),
        ("{Net}(x=1, 2)", "a positional argument follows a named one", 12),
        ("{Net}(x=1, x=2)", "argument 'x' is given twice", 12),
        ("min()", "min takes an argument or more, not 0,", 1),
        ("ceil(a, b)", "ceil takes one argument, not 2,", 1),
        ("max(a=1)", "max takes no named arguments", 1),
        ("a if b", "expected 'else'", 7),
        ("1/0", "division by zero", 3),
        ("a * not b", "'not' needs brackets", 5),
        ("f(a)", "expected an operator, found '\\('", 2),
    ],
)
def test_a_mistake_is_named_with_its_character(text: str, reason: str, position: int) -> None:
    with pytest.raises(TemplateError, match=f"{reason}.* at character {position}$"):
        parse(text)


HOSTILE = {
    "brackets": "(" * 40_000,
    "signs": "-" * 50_000 + "a",
    "powers": "**".join(["9"] * 20_000),
    "choices": "1 if a else " * 8_000 + "1",
    "divisions": "/".join(["a"] * 50_000),
    "calls": "{N}(" * 20_000,
    "negations": "not " * 20_000 + "a",
    "code": "__import__('os').system('true')",
    "attribute": "a.__class__",
    "lambda": "(lambda: 1)()",
    "comprehension": "[x for x in range(10)]",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(TemplateError):
        parse(text)

    assert time.process_time() - start < 2


def test_a_long_flat_sum_is_no_problem() -> None:
    tree = parse(" + ".join(["a"] * 5_000))

    assert isinstance(tree, Sum)
    assert len(tree.terms) == 5_000


@given(st.text(alphabet="ab ${}()+-*/%<>=!.,0123456789ifelsnotdrx", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        tree = parse(text)
    except TemplateError:
        return

    assert parse(show(tree)) == tree


def kinds(text: str) -> list[Kind]:
    return [token.kind for token in read_tokens(text)]


def test_each_word_has_its_kind_and_place() -> None:
    tokens = read_tokens("2 * ${B} + {torch.nn.Linear}(min(x))")

    assert [token.text for token in tokens] == [
        "2",
        "*",
        "B",
        "+",
        "torch.nn.Linear",
        "(",
        "min",
        "(",
        "x",
        ")",
        ")",
        "",
    ]
    assert [token.position for token in tokens][:5] == [0, 2, 4, 9, 11]
    assert tokens[-1].kind is Kind.END


def test_a_parameter_may_leave_its_sigil_away() -> None:
    assert kinds("num_heads") == kinds("${num_heads}") == [Kind.PARAMETER, Kind.END]


def test_a_module_may_name_its_variant() -> None:
    assert [token.text for token in read_tokens("{ Net[eager] }")] == ["Net[eager]", ""]


@pytest.mark.parametrize("text", ["$B", "${}", "{}", "a.b", "'x'", "a[0]", "é", "x & y", "${a.b}", "{A B}", "@", "\0"])
def test_what_is_not_in_the_language_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(TemplateError, match=r"cannot read .* at character \d"):
        read_tokens(text)


def test_a_template_of_absurd_length_is_refused() -> None:
    with pytest.raises(TemplateError, match="too long"):
        read_tokens("1+" * MAX_CHARACTERS)


def test_a_number_of_absurd_length_is_refused() -> None:
    with pytest.raises(TemplateError, match="a number of 5000 digits is too long"):
        read_tokens("7" * 5000)


@pytest.mark.parametrize("name", ["min", "if", "not", "_x", "a-b", "", "1a", "é"])
def test_words_of_the_language_are_no_parameter_names(name: str) -> None:
    assert not is_parameter_name(name)


def test_config_attributes_are_parameter_names() -> None:
    assert all(is_parameter_name(name) for name in ("B", "num_key_value_heads", "d_model2"))
