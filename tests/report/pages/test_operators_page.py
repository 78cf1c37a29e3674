from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened, search_for
from tests.report.folders import page_of
from tests.report.traces import transformer

pytestmark = pytest.mark.browser


def test_operators_can_be_sorted_by_any_column(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(4), tmp_path), "#tab=operators") as page:
        first = page.locator(".table-body [role=row]").first
        expect(first).to_contain_text("aten.mm.default")
        page.get_by_role("button", name="Operator", exact=True).click()
        expect(first).to_contain_text("aten.add.Tensor")
        expect(page.get_by_role("columnheader", name="Operator")).to_have_attribute("aria-sort", "ascending")
        page.get_by_role("button", name="Operator", exact=True).click()
        expect(first).to_contain_text("aten.silu.default")


def test_operators_can_be_filtered_and_chosen_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(4), tmp_path), "#tab=operators") as page:
        search_for(page, "Search operators", "calls:>10 aten.m")
        expect(page.get_by_role("status")).to_have_text("2 of 7")
        page.get_by_role("grid").press("ArrowDown")
        expect(page.get_by_label("Selected operator")).to_contain_text("aten.mm.default")
        page.get_by_role("grid").press("ArrowDown")
        expect(page.get_by_label("Selected operator")).to_contain_text("aten.mul.Tensor")


def test_an_operator_shows_its_signatures(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(4), tmp_path), "#tab=operators&op=aten.silu.default") as page:
        details = page.get_by_label("Selected operator")
        expect(details).to_contain_text("self=float32[1, 16, 256]")
        expect(details).to_contain_text("model.layers.3.mlp")


def test_an_operator_that_the_model_does_not_call_is_said_not_to_be_there(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(1), tmp_path), "#tab=operators&op=aten.nothing") as page:
        expect(page.get_by_label("Selected operator")).to_contain_text("does not call aten.nothing")
