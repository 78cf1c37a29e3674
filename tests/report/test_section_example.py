"""docs/extend/report-section.md shows a whole section; here it is run as it stands."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened, search_for
from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.report.page import Report, assemble, render_page
from torchstone.report.render import SECTIONS
from torchstone.report.section import ReportFolder, Section

DOCUMENT = Path(__file__).parents[2] / "docs" / "extend" / "report-section.md"


def example() -> Section:
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)  # noqa: S102 - our own documentation
    section = names["HEAT"]
    assert isinstance(section, Section)
    return section


def report_with_heat(path: Path) -> Report:
    trace = transformer(3)
    heat = [None if op == 5 else 100 + op for op in range(len(trace.ops))]
    folder = folder_of(trace, path)
    (folder / "heat.json").write_text(json.dumps({"milliwatts": heat}))
    return assemble(ReportFolder(folder), (*SECTIONS, example()))


def test_the_example_of_the_documentation_is_a_section(tmp_path: Path) -> None:
    view = report_with_heat(tmp_path).sections[-1]

    assert view.cards[0].value == "158 mW"
    assert view.notes == ("1 op calls were not measured",)


@pytest.mark.browser
def test_the_page_draws_the_example_and_its_column(browser: Browser, tmp_path: Path) -> None:
    page_path = tmp_path / "report.html"
    page_path.write_bytes(render_page(report_with_heat(tmp_path)))
    with opened(browser, page_path, "#tab=heat") as page:
        expect(page.locator(".chart .readout")).to_contain_text("Highest in view: 158 at op call 58, aten.mm.default")
        expect(page.get_by_role("grid")).to_contain_text("unknown")
        page.get_by_role("row").nth(6).get_by_role("gridcell").last.click()
        expect(page.locator(".whole-row")).to_contain_text("unknown")
        page.get_by_role("grid").get_by_role("button", name="aten.embedding.default").click()
        expect(page.get_by_label("Selected operator")).to_contain_text("1 call")
        page.go_back()
        expect(page.locator("#panel-heat")).to_be_visible()
        page.locator("#tab-modules").click()
        search_for(page, "Search modules", "heat:>150 class:linear")
        expect(page.get_by_role("status")).to_contain_text("of")
        expect(page.locator(".tree-row.hit").first).to_be_visible()
        page.locator("#tab-overview").click()
        expect(page.locator("#panel-overview")).to_contain_text("158 mW")
