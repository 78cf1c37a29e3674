"""Formulas as LaTeX: as in a paper, and accepted by a renderer, KaTeX, which is fetched once into .cache/."""

import json
import os
import shutil
import subprocess

import pytest
from hypothesis import given

from tests.formula.expressions import expressions
from torchstone.formula.database.files import load_shipped
from torchstone.formula.database.latex import latex
from torchstone.formula.language.expression import Expression
from torchstone.formula.language.parse import parse
from torchstone.record.formula import Quantity


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
        ("5 * n * log2(n + 1)", r"5 n \log_2 \left(n + 1\right)"),
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


RENDER = """
const katex = require("katex");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
const failed = [];
for (const text of texts) {
  try {
    const html = katex.renderToString(text, {strict: "error", throwOnError: true, output: "html"});
    if (!html.includes("katex-html")) failed.push([text, "nothing was drawn"]);
  } catch (error) { failed.push([text, String(error)]); }
}
console.log(JSON.stringify(failed));
"""
ODD = (
    "a**b**c",
    "-(a + b)**2",
    "1 / (1 / a)",
    "a if b else (c if d else e)",
    "min(a, 3 // b) % 7",
    "a_b_c * _d",
    "log2(a)**2",
)


def rendering_problems(texts: list[str]) -> list[list[str]]:
    """What KaTeX does not accept, in its strict mode."""
    from tests.report.npm import absent, node_modules  # not on Windows, where the other tests of this file run

    node = shutil.which("node")
    if node is None:
        absent("rendering LaTeX needs node")
    done = subprocess.run(
        [node, "-e", RENDER], input=json.dumps(texts), capture_output=True, text=True, check=False,
        env={**os.environ, "NODE_PATH": str(node_modules())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_a_renderer_draws_every_shipped_formula() -> None:
    entries = load_shipped().modules.values()
    templates = [entry.template(quantity) for entry in entries for quantity in Quantity]
    texts = [latex(parse(text)) for text in dict.fromkeys(templates) if text is not None]

    assert len(texts) > 500
    assert rendering_problems(texts + [latex(parse(text)) for text in ODD]) == []


def test_a_renderer_finds_broken_latex() -> None:
    assert len(rendering_problems([r"\frac{1}{2", r"\unknowncommand", "a"])) == 2
