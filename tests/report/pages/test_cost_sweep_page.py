from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.record.test_cost import sweep_of
from tests.report.browser import opened
from torchstone.record.codec import save
from torchstone.report.render import write_report
from torchstone.report.sections.cost_sweep import FILE

pytestmark = pytest.mark.browser


def test_sizes_stand_at_the_axis_and_each_quantity_has_its_tab(browser: Browser, tmp_path: Path) -> None:
    save(tmp_path / FILE, sweep_of(128, 1024, hardware="A device"))

    with opened(browser, write_report(tmp_path), "#tab=cost_sweep") as page:
        expect(page.get_by_text("Highest in view: 1,048,576")).to_be_visible()
        expect(page.locator(".xtick text").last).to_have_text("1,024")
        expect(page.locator("body")).to_contain_text("at seq_len 1,024")
        page.locator(".chart-tabs button", has_text="Predicted time").click()
        expect(page.get_by_role("heading", name="Predicted time on A device by seq_len")).to_be_visible()
