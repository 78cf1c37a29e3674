"""Two results side by side: what is done on one side is done on the other."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.report.browser import opened
from tests.report.traces import transformer
from tests.workflows.test_diff import folder
from torchstone.workflows.diff import diff_folders

pytestmark = pytest.mark.browser
TREES = ("before", "after")


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a model that has lost three of its layers."""
    path = tmp_path_factory.mktemp("panes")
    diff_folders(folder(path / "old", transformer(12)), folder(path / "new", transformer(9)), path / "out")
    return path / "out" / "report.html"


def selected(page: Page) -> list[str]:
    return [page.locator(f"#panel-panes [role=treeitem][aria-selected=true][id^={side}-]").get_attribute("id") or ""
            for side in TREES]  # fmt: skip


def test_the_first_difference_is_chosen_and_named_on_both_sides(browser: Browser, changes: Path) -> None:
    with opened(browser, changes, "#tab=panes") as page:
        details = page.get_by_label("Selected module")
        expect(details).to_contain_text("model.layers.9")
        expect(details).to_contain_text("removed: only in")
        first, second = (page.locator(f"#{one}") for one in selected(page))
        expect(first.get_by_role("img", name="removed")).to_be_visible()
        expect(second.get_by_role("img", name="not in")).to_have_text("absent")


def test_keys_clicks_and_scrolling_move_both_trees(browser: Browser, changes: Path) -> None:
    with opened(browser, changes, "#tab=panes&node=model.layers.0") as page:
        left, right = (page.get_by_role("tree").nth(number) for number in range(2))
        left.press("ArrowRight")
        opened_rows = [page.locator(f"[id^={side}-][aria-expanded=true]").count() for side in TREES]
        assert opened_rows[0] == opened_rows[1] > 0
        left.press("ArrowDown")
        number = selected(page)[0].removeprefix("before-")
        assert selected(page) == [f"before-{number}", f"after-{number}"]
        right.get_by_role("treeitem").first.click()
        page.wait_for_selector("#before-0[aria-selected=true]")  # a busy machine moves the selection later
        assert selected(page) == ["before-0", "after-0"]
        page.get_by_role("button", name="Expand all").click()
        page.evaluate("document.querySelectorAll('.pane .tree')[1].scrollTop = 300")
        expect(page.locator(".pane .tree").first).to_have_js_property("scrollTop", 300)
        assert page.locator("html").get_attribute("data-ready") == "panes"


def test_only_differences_and_searches_hold_for_both(browser: Browser, changes: Path) -> None:
    with opened(browser, changes, "#tab=panes") as page:
        page.get_by_role("button", name="Only differences").click()
        page.get_by_role("button", name="Expand all").click()
        for side in TREES:
            expect(page.locator(f"[id^={side}-]", has_text="layers")).not_to_have_count(0)
            expect(page.locator(f"[id^={side}-]", has_text="embed")).to_have_count(0)
        page.get_by_role("searchbox", name="Search modules").fill("change:removed class:mlp")
        expect(page.locator("[id^=before-].hit")).to_have_count(3)
        expect(page.locator("[id^=after-].hit")).to_have_count(3)
