import random
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.formula.codegen.generated.packages import generate, run_bare
from tests.formula.entries import entry, formulas, memory
from torchstone.errors import FormulaError
from torchstone.formula.codegen.package import MARK, generated_files, reachable
from torchstone.formula.database.compute import compute_flops, compute_memory
from torchstone.formula.database.files import Formulas, load_shipped
from torchstone.record.formula import FormulaEntry

SHIPPED = Formulas(entries=load_shipped().modules)
SOME = Formulas(
    entries={**reachable(SHIPPED, "LlamaForCausalLM").entries, **reachable(SHIPPED, "TransformerBlock").entries}
)
NASTY = 'x"); import os  # \\ """ \n{evil}'


def leaf(
    path: str,
    formula: str,
    *parameters: str,
    defaults: Mapping[str, str] | None = None,
    domain: tuple[str, ...] = (),
    variant: str = "",
) -> FormulaEntry:
    one = entry(path, formula, *parameters, defaults=defaults, domain=domain, variant=variant)
    return replace(one, memory_analysis=memory(*parameters, reads=formula, writes="1"))


def random_points(known: Formulas, count: int) -> list[tuple[str, dict[str, int]]]:
    """Points inside the domains: all sizes are multiples of one another's divisors."""
    choose = random.Random(7)  # noqa: S311 - any points will do
    points = []
    for one in known.entries.values():
        for _ in range(count):
            values = {name: choose.choice([2, 4, 8, 16]) * choose.choice([16, 32, 48]) for name in one.all_parameters}
            points.append((one.module_path if not one.variant else f"{one.module_path}[{one.variant}]", values))
    return points


def by_evaluator(known: Formulas, name: str, values: dict[str, Any]) -> list[object] | None:
    try:
        return [compute_flops(name, formulas=known, **values), dict(compute_memory(name, formulas=known, **values))]
    except FormulaError:
        return None


@pytest.mark.parametrize(
    "known", [pytest.param(SOME, id="some"), pytest.param(SHIPPED, id="all", marks=pytest.mark.heavy)]
)
def test_shipped_formulas_give_equal_numbers_in_a_bare_interpreter(known: Formulas, tmp_path: Path) -> None:
    generate(known, tmp_path)
    points = [
        ("TransformerBlock", {"B": 1, "S": 2048, "hidden_size": 4096, "num_heads": 32, "intermediate_size": 11008})
    ]
    points += random_points(known, 3)
    answers = run_bare(tmp_path, points)
    expected = [by_evaluator(known, name, values) for name, values in points]

    assert answers[0][0] == 678_711_263_232
    assert sum(value is not None for value in expected) > len(known.entries)
    for (name, values), answer, value in zip(points, answers, expected, strict=True):
        if value is None:
            assert isinstance(answer[0], str), (name, values)
        else:
            assert answer == value, (name, values)


def test_every_part_of_the_language_is_generated(tmp_path: Path) -> None:
    parts = [
        "2 * a // b % 7 + a**2",
        "max(a, b, 5) * min(a, b) + ceil(a / 3) - floor(b / 7) + ceil_log2(a)",
        "(10 * a * log2(b) + 1) // 2",
        "a if a > b and not a == 3 or b < 2 else -b",
        "(a >= b) + (a != b) * 4.5 * 2",
        "a**b if b < 5 else b",
        "1 / (a - a) if a < 0 else 3",
    ]
    known = formulas(*(leaf(f"pkg.N{number}", text, "a", "b") for number, text in enumerate(parts)))
    generate(known, tmp_path)
    points = [(f"N{number}", {"a": a, "b": b}) for number in range(len(parts)) for a in (1, 2, 17) for b in (1, 3, 64)]
    answers = run_bare(tmp_path, points)

    assert answers == [by_evaluator(known, name, values) for name, values in points]


def test_defaults_domains_and_variants_are_generated(tmp_path: Path) -> None:
    inner = leaf("pkg.Inner", "${n}", "n", "kv", defaults={"kv": "${n} // 2"}, domain=("n % 2 == 0",), variant="eager")
    outer = leaf("pkg.Outer", "3 * {Inner[eager]}(${m}) + {Inner[eager]}(n=2, kv=1)", "m")
    known = formulas(inner, outer)
    generate(known, tmp_path)

    right, wrong = run_bare(tmp_path, [("Outer", {"m": 4}), ("pkg.Outer", {"m": 3})])
    assert right[0] == compute_flops("Outer", m=4, formulas=known) == 14
    assert wrong == ["OutsideDomainError", "pkg.Inner[eager] holds only where n % 2 == 0"]


def test_no_text_of_an_entry_can_become_code(tmp_path: Path) -> None:
    one = leaf("pkg.Net", "1", "n")
    nasty = replace(
        one,
        module_path=f"pkg.{NASTY}",
        aliases=(NASTY,),
        validation=replace(one.validation, notes=NASTY, validator=NASTY),
        assumptions=(NASTY,),
        flop_analysis=replace(one.flop_analysis, thinking_process=NASTY),
    )
    generate(formulas(nasty), tmp_path)

    assert run_bare(tmp_path, [(NASTY, {"n": 1})])[0][0] == 1


def test_a_database_with_mistakes_is_refused() -> None:
    with pytest.raises(FormulaError, match=r"nothing was generated: a\.Net, .* \(and 1 more\)"):
        generated_files(formulas(entry("a.Net", "${x}"), entry("b.Net", "${y}")))


def test_only_what_is_asked_for_and_what_it_calls_is_taken() -> None:
    known = formulas(entry("a.Net", "{Leaf}()"), entry("b.Leaf", "1"), entry("c.Other", "1"))

    assert set(reachable(known, "a.net").entries) == {"a__Net", "b__Leaf"}
    assert set(reachable(known, "").entries) == set(known.entries)


def test_files_stand_where_people_look_for_them() -> None:
    files = generated_files(SOME)

    assert "class TorchLinear(GeneratedModule):" in files["torch/nn_linear.py"]
    assert {"__init__.py", "registry.py", "base.py", "exact.py", "torch/__init__.py"} <= files.keys()
    assert files["__init__.py"].startswith(MARK)
    assert all("import torchstone" not in text for text in files.values())


@pytest.mark.parametrize(
    "known", [pytest.param(SOME, id="some"), pytest.param(SHIPPED, id="all", marks=pytest.mark.heavy)]
)
@pytest.mark.skipif(find_spec("ruff") is None, reason="the formatter is not installed")
def test_the_package_is_formatted(known: Formulas, tmp_path: Path) -> None:
    generate(known, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "--diff", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[:3000]


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("mypy") is None, reason="the type checker is not installed")
def test_the_package_is_typed(tmp_path: Path) -> None:
    generate(SHIPPED, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "generated_modules"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[:3000]
