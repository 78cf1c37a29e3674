from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened
from tests.report.sections.test_cost import trace_and_costs
from torchstone.record import codec
from torchstone.report.render import write_report
from torchstone.report.section import TRACE_FILE

pytestmark = pytest.mark.browser


def page_of(path: Path, *, predicted: bool) -> Path:
    trace, table = trace_and_costs(predicted=predicted)
    codec.save(path / TRACE_FILE, trace)
    codec.save(path / "cost.json", table)
    return write_report(path)


def test_the_roofline_has_a_dot_for_each_op_that_takes_time(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(tmp_path, predicted=True), "#tab=cost") as page:
        expect(page.locator(".roofline .roof")).to_be_visible()
        working = [cost for cost in trace_and_costs()[1].signatures if cost.flops]
        expect(page.locator(".roofline .dot")).to_have_count(len(working))
        expect(page.locator(".roofline .dot title").first).to_contain_text("aten.addmm.default")


def test_without_a_device_the_page_lists_and_draws_no_roof(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(tmp_path, predicted=False), "#tab=cost") as page:
        expect(page.get_by_role("heading", name="Live at the peak")).to_be_visible()
        expect(page.get_by_role("heading", name="Live memory by op call")).to_be_visible()
        expect(page.locator(".roofline")).to_have_count(0)


def test_the_module_tree_has_a_column_of_flops(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(tmp_path, predicted=True), "#tab=modules") as page:
        expect(page.locator("body")).to_contain_text("FLOPs")
