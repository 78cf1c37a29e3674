import json

import pytest

from torchstone.cli.main import run

BLOCK = ["B=1", "hidden_size=4096", "num_heads=32", "intermediate_size=11008"]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["formula", "show", *arguments]) == 0
    return capsys.readouterr().out


def test_an_entry_is_shown_with_all_that_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "TransformerBlock")

    assert text.splitlines()[0] == "TransformerBlock"
    assert "holds where  hidden_size % num_heads == 0" in text
    assert "dtype_bytes = 2" in text
    assert all(f"\n{quantity}\n" in text for quantity in ("flops", "reads", "writes", "intermediates", "weights"))


def test_some_parameters_are_put_in(capsys: pytest.CaptureFixture[str]) -> None:
    expanded = shown(capsys, "MultiHeadAttention", "B=1", "S=2048", "--expand", "--of", "flops")

    assert expanded.endswith("flops\n  16384 * hidden_size**2 + 8388608 * hidden_size\n")


def test_a_formula_is_factored(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sympy", reason="writing formulas as products needs sympy")

    assert "  2 * B * S * hidden_size * (S + 4 * hidden_size)\n" in shown(
        capsys, "MultiHeadAttention", "--factor", "--of", "flops"
    )


def test_a_formula_is_shown_as_latex(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "MultiHeadAttention", "--latex", "--expand", "--of", "flops") == (
        r"\mathrm{flops} = 2 B S^{2} \mathrm{hidden\_size} + 8 B S \mathrm{hidden\_size}^{2}" + "\n"
    )


def test_growth_is_shown_for_each_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "TransformerBlock", "--growth", "--of", "flops")

    assert ["S", "O(S**2)", "2 * B * hidden_size"] in [
        [part.strip() for part in line.split("  ") if part] for line in text.splitlines()
    ]


def test_growth_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, "TransformerBlock", "--growth", "--of", "flops", "--json"))

    assert document["schema"] == "torchstone/formula_growth/1"
    assert {"parameter": "S", "order": 2, "text": "O(S**2)", "leading": "2 * ${B} * ${hidden_size}"} in document[
        "growth"
    ]["flops"]


def test_the_dominant_parts_are_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, "TransformerBlock", *BLOCK, "--dominant", "S", "--of", "flops", "--json"))

    found = document["dominant"]["flops"]
    assert document["parameter"] == "S"
    # 2 S**2 h of the scores exceed 6 S h**2 of the three projections beyond S = 3 h
    assert [one["part"] for one in found["terms"] if one["from"] == 3 * 4096 + 1] == ["attention.scores"]
    assert [one["part"] for one in found["powers"] if one["from"] == 38407] == ["S**2"]


def test_the_dominant_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "TransformerBlock", *BLOCK, "--dominant", "S", "--of", "flops")

    assert "12,289  attention.scores" in text
    assert "38,407  S**2" in text


def test_the_document_has_its_fixed_keys(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, "TransformerBlock", "--json"))

    assert document["schema"] == "torchstone/formula/1"
    assert document["entry"]["module_path"] == "TransformerBlock"
    assert document["flops"].startswith("{MultiHeadAttention}(${B}, ")
    assert {"reads", "writes", "evidence"} <= document.keys()


def test_a_wrong_parameter_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["formula", "show", "MLP", "X=1"]) == 2
    assert "MLP has no parameter X" in capsys.readouterr().err
    assert run(["formula", "show", "TransformerBlock", "--dominant", "S"]) == 2
    assert "give values for" in capsys.readouterr().err
