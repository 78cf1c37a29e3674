from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, expect
from torch import Tensor

from tests.report.browser import Theme, opened
from tests.report.pages.test_shell_page import axe_findings
from tests.report.view.test_source_lines import Net
from torchstone.capture.capture_model import capture
from torchstone.cost.price_trace import price
from torchstone.record.codec import save
from torchstone.report.render import write_report

pytestmark = pytest.mark.browser


def test_the_code_is_shown_with_the_cost_of_each_line(browser: Browser, tmp_path: Path) -> None:
    trace = capture(Net(), torch.zeros(4, 8))
    save(tmp_path / "trace.json", trace)
    save(tmp_path / "cost.json", price(trace))

    with opened(browser, write_report(tmp_path), "#tab=source") as page:
        expect(page.get_by_label("Selected function")).to_contain_text("Net.forward")
        row = page.get_by_role("row", name="self.wide(x)")
        expect(row).to_contain_text("2,176")
        expect(row).to_contain_text("51.1 %")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 400)])
def test_no_barrier_is_found_in_the_code(browser: Browser, tmp_path: Path, theme: Theme, width: int) -> None:
    trace = capture(Net(), torch.zeros(4, 8))
    save(tmp_path / "trace.json", trace)

    with opened(browser, write_report(tmp_path), "#tab=source", theme=theme, width=width) as page:
        assert axe_findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


class Long(Net):
    def forward(self, x: Tensor) -> Tensor:
        """A text.

        1

        2

        3

        4

        5

        6

        7

        8

        9

        10

        11

        12

        13

        14
        """
        return super().forward(x)


def test_what_stands_before_the_first_op_is_scrolled_past(browser: Browser, tmp_path: Path) -> None:
    save(tmp_path / "trace.json", capture(Long(), torch.zeros(4, 8)))

    with opened(browser, write_report(tmp_path), "#tab=source") as page:
        expect(page.get_by_label("Selected function")).to_contain_text("Long.forward")
        expect(page.get_by_role("row", name="super().forward(x)")).to_be_in_viewport()
        page.get_by_role("tab", name="Modules").click()
        expect(page.get_by_label("Selected function")).to_be_hidden()
