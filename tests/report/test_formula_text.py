import json
from xml.etree import ElementTree

from msgspec.structs import replace

from tests.formula.entries import entry
from torchstone.cost.roofline import find_hardware
from torchstone.formula.algebra.growth import DominantRange, Growth
from torchstone.formula.language.parse import parse
from torchstone.record.cost import OptimiserCost
from torchstone.record.formula import (
    CodeLocation,
    Coverage,
    Evidence,
    FormulaCost,
    FormulaModule,
    Quantity,
    Status,
    TradeOff,
    TradeOffPoint,
    Validation,
)
from torchstone.report.formula_chart import trade_off_chart
from torchstone.report.formula_cost_text import formula_cost_text
from torchstone.report.formula_document import trade_off_document
from torchstone.report.formula_text import (
    derived_text,
    dominance_text,
    entry_text,
    formula_text,
    growth_text,
    trade_off_text,
)

NET = replace(
    entry("pkg.Net", "${B}", "B", "kv", defaults={"kv": "${B} // 2"}, domain=("${B} % 2 == 0",), variant="eager"),
    aliases=("public.Net",),
    assumptions=("attention is eager",),
    code_location=CodeLocation(file="pkg/net.py", line_start=3, line_end=9),
    validation=Validation(status=Status.VALIDATED, validator="derived", date="2026-01-02", notes="a note"),
    versions={"torch": "2.13"},
    evidence=Evidence(points_checked=12, max_error="0", routes=("fitted", "held out")),
)


def test_an_entry_is_shown_with_its_facts() -> None:
    assert entry_text(NET, {Quantity.FLOPS: parse("2 * B")}).splitlines() == [
        "pkg.Net[eager]",
        "status       validated (derived); 2026-01-02; 12 points by fitted, held out, largest error 0; torch 2.13",
        "parameters   B, kv = B // 2",
        "holds where  B % 2 == 0",
        "assuming     attention is eager",
        "also         public.Net",
        "source       pkg/net.py:3-9",
        "notes        a note",
        "",
        "flops",
        "  2 * B",
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert entry_text(entry("Net", "1", "B"), {}).splitlines() == [
        "Net", "status      unchecked (hand)", "parameters  B",
    ]  # fmt: skip


def test_a_long_sum_has_one_term_a_line() -> None:
    long = "a_parameter_with_a_long_name"
    tree = parse(f"{long} * 2 + {long} * 3 - {long} * 4 - 5 + {long}")

    assert formula_text(tree).splitlines() == [
        f"    {long} * 2", f"  + {long} * 3", f"  - {long} * 4", "  - 5", f"  + {long}",
    ]  # fmt: skip


def test_a_long_sum_in_a_product_has_one_term_a_line() -> None:
    long = "a_parameter_with_a_long_name"
    tree = parse(f"2 * B * ({long} * 2 + {long} * 3 - {long} * 4 - 5 * {long})")

    assert formula_text(tree).splitlines() == [
        "  2 * B * (", f"    {long} * 2", f"  + {long} * 3", f"  - {long} * 4", f"  - 5 * {long}", "  )",
    ]  # fmt: skip
    assert formula_text(parse(f"max({', '.join([long] * 5)})")).startswith("  max(")


def test_growth_is_a_table() -> None:
    text = growth_text(
        Quantity.FLOPS,
        [
            Growth(parameter="S", order=2, leading=parse("2 * B")),
            Growth(parameter="n", order=0, leading=parse("7")),
            Growth(parameter="B", order=1, leading=parse(" + ".join(["long_name"] * 19))),
            Growth(parameter="k", order=1, leading=None),
        ],
    )

    assert [line.split("  ")[-1].strip() for line in text.splitlines()] == [
        "times", "2 * B", "O(1)", "a longer sum", "O(k)",
    ]  # fmt: skip


def test_reigns_are_a_table() -> None:
    text = dominance_text(Quantity.FLOPS, "S", [DominantRange(part="S**2", first=38407, share=0.5)])

    assert text.splitlines()[1].split() == ["38,407", "S**2", "50.0%"]


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
    assert "agreement: 0 of 1 module" in shown


def test_what_has_no_formula_says_why() -> None:
    shown = text(module("layers.0", None, reason="it is refused"))

    assert "traced only: net.Layer: it is refused" in shown
    assert "coverage: 0 formula, 0 derived now, 1 traced only of 1 module" in shown


def test_a_refusal_says_what_to_do() -> None:
    reason = "net.Gate: the flops of aten.sort.default (12, 40) are not a polynomial of the parameters"
    text = derived_text([], {"net.Gate": reason})

    assert text.startswith(f"refused: {reason}\n  what to do: fix this size in the recipe")
    assert derived_text([], {"net.Gate": "net.Gate: something else"}) == "refused: net.Gate: something else"


def _trade_off() -> TradeOff:
    points = tuple(
        TradeOffPoint(value=size, memory_bytes=size * 2**30, compute_s=size / 1000, traffic_s=0.002)
        for size in (1, 2, 4, 8)
    )
    return TradeOff(
        module_path="net.Gate",
        parameter="B",
        hardware=find_hardware("n150"),
        devices=1,
        element_type="bfloat16",
        memory_bytes=4 * 2**30,
        fits=4,
        points=points,
        bounds=((1, "memory"), (2, "compute")),
    )


def test_a_trade_off_is_drawn_as_bars_up_to_what_fits() -> None:
    found = _trade_off()
    lines = trade_off_text(found).splitlines()

    assert lines[0].startswith("B = 4 fits in 4.00 GiB of ")
    assert lines[1] == "memory-bound from B = 1, compute-bound from B = 2"
    assert [line.count("#") for line in lines[4:8]] == [6, 12, 24, 24]
    assert lines[7].endswith("> does not fit")
    document = json.loads(trade_off_document(found))
    assert document["value"] == 4
    assert [one["fits"] for one in document["series"]] == [True, True, True, False]
    assert trade_off_text(replace(found, fits=None)).startswith("no B fits")


def test_a_trade_off_is_drawn_as_a_chart_with_what_fits_and_what_bounds_the_call() -> None:
    drawn = ElementTree.fromstring(trade_off_chart(_trade_off()))  # noqa: S314 - the text was written here

    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    lines = [one.get("points") or "" for one in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert any(text and "compute-bound from B = " in text for text in texts)
    assert len(lines) == 3
    heights = [[float(pair.split(",")[1]) for pair in line.split()] for line in lines]
    assert all(heights[0][one] >= heights[0][one + 1] for one in range(len(heights[0]) - 1))  # memory grows


def test_the_step_of_an_optimizer_is_told_by_parameter() -> None:
    step = OptimiserCost(
        name="adam", parameters=10, state_bytes=80, gradient_bytes=40, flops=130, bytes_read=160, bytes_written=120
    )
    shown = formula_cost_text(FormulaCost(model="net", modules=(), evaluation_s=0.0, optimizer=step))

    assert "one step of adam is 13 FLOPs for each of 10 parameters" in shown
