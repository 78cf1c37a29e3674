from msgspec.structs import replace

from tests.formula.entries import entry
from torchstone.formula.algebra.growth import DominantRange, Growth
from torchstone.formula.language.parse import parse
from torchstone.record.formula import CodeLocation, Evidence, Quantity, Status, Validation
from torchstone.report.formula_text import dominance_text, entry_text, formula_text, growth_text

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
