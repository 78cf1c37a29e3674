"""The Python of the cost pages, run as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cost.calls import priced, spec
from torchstone.cost.registry import forget_price
from torchstone.cost.roofline import find_hardware

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_price_of_the_custom_op_is_what_its_docstring_says() -> None:
    try:
        exec(block("extend/price-an-op.md", "python"), {})  # noqa: S102 - our own documentation
        found = priced("mylib.gated_mm.default", spec(2, 4), x=spec(2, 3), weight=spec(3, 4))
    finally:
        forget_price("mylib::gated_mm")
    assert (found.flops, found.matmul_flops) == (2 * 24 + 5 * 8, 2 * 24)
    assert (found.reads, found.writes) == ((24, 48), (32,))


def test_the_lines_for_people_who_come_from_counters_run(capsys: pytest.CaptureFixture[str]) -> None:
    exec(block("coming-from/flop-counters.md", "python"), {})  # noqa: S102 - our own documentation
    assert capsys.readouterr().out.startswith("136 128 {}")


def test_the_device_in_the_manual_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(block("commands/hardware.md", "toml"))
    assert find_hardware(str(path)).peak_flops == {"bfloat16": 1e14, "float8": 2e14}


def test_the_python_of_the_cost_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}

    exec(block("commands/cost.md", "python"), names)  # noqa: S102 - our own documentation

    assert capsys.readouterr().out.startswith(f"{names['outcome'].table.totals.flops} ")
    assert names["table"].prediction.hardware.name == "h100"
