import subprocess
import sys
from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formula.expressions import PARAMETERS, call_free
from torchstone.errors import FormulaError
from torchstone.formula.codegen.generated import exact
from torchstone.formula.codegen.python_text import LINE, RETURN, PythonPrinter, Statements
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Call, Expression, Product, Sum, Value
from torchstone.formula.language.parse import parse

points = st.fixed_dictionaries(dict.fromkeys(PARAMETERS, st.integers(1, 30)))
LONG = "a_parameter_with_a_rather_long_name"


def call_text(node: Call) -> tuple[str, list[tuple[str, Expression]]]:
    return f"_{node.module}.flops", list(node.named)


def statements(tree: Expression, indent: int = 4) -> list[str]:
    body = Statements(PythonPrinter(call_text), indent=indent)
    body.assign(RETURN, tree)
    return body.lines


def test_what_fits_is_one_line() -> None:
    assert statements(parse("2 * a + b")) == ["    return 2 * a + b"]


def test_a_long_sum_is_one_term_a_line() -> None:
    lines = statements(parse(" + ".join(f"{number} * {LONG}" for number in range(4)) + f" - {LONG} - 7"))

    assert lines == [
        "    return (",
        f"        0 * {LONG}",
        f"        + 1 * {LONG}",
        f"        + 2 * {LONG}",
        f"        + 3 * {LONG}",
        f"        - {LONG}",
        "        - 7",
        "    )",
    ]


def test_a_long_choice_computes_one_branch_only() -> None:
    long_sum = " + ".join([LONG] * 4)
    lines = statements(parse(f"({long_sum}) if b > 0 else 1 / (b - b)"))

    assert lines[0] == "    if b > 0:"
    assert lines[-2:] == ["    else:", "        return _exact.divide(1, b - b)"]


def test_long_arguments_stand_below_the_call() -> None:
    names = ", ".join(f"x{number}={LONG}" for number in range(2))
    more = ", ".join(f"x{number}={LONG}" for number in range(5))

    assert statements(parse(f"{{Net}}({names}, some_more={LONG[:20]})")) == [
        "    return _Net.flops(",
        f"        {names}, some_more={LONG[:20]}",
        "    )",
    ]
    assert statements(parse(f"{{Net}}({more})"))[1] == f"        x0={LONG},"


def wide(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(parts, min_size=2, max_size=6).map(tuple)
    return st.one_of(several.map(Sum), several.map(Product))


@settings(max_examples=60)
@given(wide(call_free), points)
def test_statements_compute_what_the_evaluator_computes(tree: Expression, point: dict[str, Value]) -> None:
    try:
        value = evaluate(tree, point)
    except FormulaError:
        return  # no value here
    body = "\n".join(statements(tree))
    scope = {"_exact": exact, "Value": object}
    exec(f"def computed({', '.join(PARAMETERS)}):\n{body}", scope)  # noqa: S102 - what we generate
    computed = scope["computed"]

    assert callable(computed)
    assert computed(**point) == value


@settings(max_examples=25)
@given(wide(wide(call_free)))
def test_long_operands_get_names_of_their_own(tree: Expression) -> None:
    lines = statements(tree, indent=8)

    assert sum(line.lstrip().startswith("return") for line in lines) >= 1
    assert all(line.startswith("        ") for line in lines)


@pytest.mark.skipif(find_spec("ruff") is None, reason="the formatter is not installed")
def test_long_formulas_are_laid_out_as_a_formatter_would() -> None:
    terms = [f"{number} * {LONG} * (b + {LONG}) // {number}" for number in range(2, 9)]
    texts = [" + ".join(terms), " * ".join(terms), f"max({', '.join(terms)})", f"({terms[0]}) if b > 2 else {terms[1]}"]
    code = ""
    for number, text in enumerate(texts):
        code += f"def f{number}({LONG}, b):\n" + "\n".join(statements(parse(text))) + "\n\n\n"
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={LINE}", "--diff", "-"],
        input=code.rstrip() + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
