from torchstone.record.formula import Coverage, FormulaCost, FormulaModule
from torchstone.report.formula_text import formula_cost_text


def module(path: str, flops: int | None, traced: int = 1000, reason: str = "") -> FormulaModule:
    return FormulaModule(
        path=path, class_name="net.Layer", coverage=Coverage.TRACED if flops is None else Coverage.FORMULA, calls=1,
        traced_flops=traced, traced_bytes_read=8, traced_bytes_written=8, flops=flops,
        bytes_read=None if flops is None else 8, bytes_written=None if flops is None else 8, reason=reason,
    )  # fmt: skip


def text(*modules: FormulaModule, fold: bool = True) -> str:
    return formula_cost_text(FormulaCost(model="net", modules=modules, evaluation_s=0.002), fold=fold)


def test_equal_layers_are_one_row() -> None:
    shown = text(module("", 2000, 2000), module("layers.0", 1000), module("layers.1", 1000))

    assert "layers.*  2 x Layer" in shown
    assert "(root)" in shown
    assert "layers.1" in text(module("layers.0", 1000), module("layers.1", 1000), fold=False)


def test_a_difference_is_told_with_both_numbers() -> None:
    shown = text(module("layers.0", 999))

    assert "differs: layers.0 (net.Layer): FLOPs 999 by formula, 1,000 traced" in shown
    assert "agreement: 0 of 1 modules" in shown


def test_what_has_no_formula_says_why() -> None:
    shown = text(module("layers.0", None, reason="it is refused"))

    assert "traced only: net.Layer: it is refused" in shown
    assert "coverage: 0 formula, 0 derived now, 1 traced only of 1 modules" in shown
