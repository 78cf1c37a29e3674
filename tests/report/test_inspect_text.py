import re

import pytest

from tests.golden_file import GoldenFile
from tests.report.traces import TraceBuilder, empty_model, one_op, spec, transformer
from torchstone.record.trace import Trace
from torchstone.report.inspect_text import (
    COLUMNS,
    TreeOptions,
    operators_text,
    totals_text,
    tree_text,
    unique_text,
)
from torchstone.report.text import OWN_CODE, coloured, failure_text
from torchstone.units import show_count

CODES = re.compile(rf"\x1b\[{OWN_CODE};\d+m")
PLAIN = TreeOptions()
EVERYTHING = TreeOptions(columns=COLUMNS)


def siblings(*names: str) -> Trace:
    """Equal modules side by side."""
    build = TraceBuilder()
    build.module("", "Net")
    for name in names:
        build.module(name, "torch.nn.Linear", parent=0, weights=[("weight", spec(4, 4))])
    return build.build()


def first_words(text: str) -> list[str]:
    return [line.lstrip("│├└─ ").split("  ")[0] for line in text.splitlines()[1:]]


def test_tree(golden: GoldenFile) -> None:
    golden.check(tree_text(transformer(3), EVERYTHING))


def test_tree_unfolded_to_a_depth(golden: GoldenFile) -> None:
    golden.check(tree_text(transformer(3), TreeOptions(fold=False, depth=3)))


def test_tree_filtered(golden: GoldenFile) -> None:
    golden.check(tree_text(transformer(3), TreeOptions(text="NORM")))


def test_operators(golden: GoldenFile) -> None:
    golden.check(operators_text(transformer(3)))


def test_unique(golden: GoldenFile) -> None:
    golden.check(unique_text(transformer(3)))


def test_totals(golden: GoldenFile) -> None:
    golden.check(totals_text(transformer(3)))


def test_failure(golden: GoldenFile) -> None:
    golden.check(failure_text(transformer(3, fails_in=1)))


def test_the_parameters_of_the_root_are_those_of_the_totals() -> None:
    trace = transformer(3)
    root = tree_text(trace, TreeOptions(columns=("params",), depth=0)).splitlines()[1]
    total = re.search(r"parameters\s+([\d,]+)", totals_text(trace))

    assert total is not None
    assert root.split(maxsplit=1)[1] == show_count(int(total[1].replace(",", "")))


def test_the_calls_of_the_operators_add_up_to_the_totals() -> None:
    trace = transformer(3)
    calls = [int(line.split()[1].replace(",", "")) for line in operators_text(trace).splitlines()[1:]]

    assert f"{sum(calls):,} calls of {len(calls)} operators" in totals_text(trace)


def test_the_unique_modules_and_their_times_add_up_to_the_totals() -> None:
    trace = transformer(3)
    times = [int(line.split()[2]) for line in unique_text(trace).splitlines()[1:]]

    assert f"{sum(times)} ({len(times)} unique" in totals_text(trace)


@pytest.mark.parametrize("trace", [transformer(3), transformer(2, fails_in=1), empty_model(), one_op()], ids=repr)
def test_numbers_stand_flush_right_in_straight_columns(trace: Trace) -> None:
    header, *lines = tree_text(trace, TreeOptions(columns=("class", "params", "calls"))).splitlines()
    end = header.index("params") + len("params")

    assert all(len(line) == len(header) for line in lines), "the last column is flush right"
    assert all(line[end - 1] != " " and line[end] == " " for line in lines)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_depth_shows_the_modules_down_to_it(depth: int) -> None:
    trace = transformer(2)
    expected = [module for module in trace.modules if module.path == "" or module.path.count(".") < depth]

    assert len(tree_text(trace, TreeOptions(depth=depth)).splitlines()) == 1 + len(expected)


def test_unfolded_every_module_has_its_line() -> None:
    trace = transformer(3)

    assert len(tree_text(trace, TreeOptions(fold=False)).splitlines()) == 1 + len(trace.modules)


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("0", "1", "2"), "0..2"),
        (("block1", "block2"), "block1..block2"),
        (("layer08", "layer09", "layer10"), "layer08..layer10"),
        (("layer1", "layer3", "layer5"), "layer1..layer5"),
    ],
)
def test_a_run_is_named_by_its_first_and_last_member(names: tuple[str, ...], label: str) -> None:
    text = tree_text(siblings(*names), PLAIN)

    assert first_words(text) == ["(root)", label]
    assert f"{len(names)} x Linear" in text


def test_a_filter_that_finds_nothing_says_so() -> None:
    assert tree_text(transformer(1), TreeOptions(text="lstm")).endswith("0 of 18 rows contain 'lstm'")


def test_a_module_that_was_never_called_is_told_from_a_container() -> None:
    build = TraceBuilder()
    build.module("", "Net")
    build.module("layers", "torch.nn.ModuleList", parent=0, container=True)
    build.module("spare", "torch.nn.ReLU", parent=0)
    calls = [line.split()[-1] for line in tree_text(build.build(), TreeOptions(columns=("calls",))).splitlines()[1:]]

    assert calls == ["never", "0", "never"]


def test_more_tensors_than_fit_are_counted() -> None:
    build = TraceBuilder()
    build.module("", "Net")
    given = [build.tensor(spec(size), kind="input", name="x") for size in range(1, 6)]
    build.enter(0, given)
    build.leave([])

    assert "f32[1] f32[2] f32[3] +2" in tree_text(build.build(), PLAIN)


def test_parameters_of_unknown_size_are_told_beside_the_bytes() -> None:
    build = TraceBuilder()
    build.module("", "Net", weights=[("known", spec(4)), ("unknown", spec(4, dtype="a_type_of_tomorrow"))])

    assert "8 (16 B, 1 tensor of unknown size)" in totals_text(build.build())


def test_a_model_that_ran_has_no_failure() -> None:
    assert failure_text(transformer(1)) == ""


@pytest.mark.parametrize("fails_in", [-1, 1])
def test_colour_changes_nothing_but_the_colour(fails_in: int) -> None:
    trace = transformer(2, fails_in=fails_in)

    for text in (totals_text, failure_text, operators_text, unique_text):
        assert CODES.sub("", text(trace, coloured)) == text(trace)
    assert CODES.sub("", tree_text(trace, PLAIN, coloured)) == tree_text(trace, PLAIN)
