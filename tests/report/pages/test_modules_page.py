from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened, rows_in, search_for
from tests.report.folders import page_of
from tests.report.traces import transformer, wide_tree

pytestmark = pytest.mark.browser


def test_the_tree_opens_with_repeated_layers_folded(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(32), tmp_path), "#tab=modules") as page:
        expect(page.get_by_role("treeitem", name="0 … 31")).to_contain_text("32 \u00d7")
        expect(page.get_by_role("treeitem")).to_have_count(7)  # root, model, embed, layers, the run, norm, lm_head


def test_a_failed_capture_opens_at_the_failure(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(4, fails_in=2), tmp_path), "#tab=modules") as page:
        chosen = page.locator('[role=treeitem][aria-selected="true"]')
        expect(chosen).to_contain_text("q_proj")
        expect(chosen).to_contain_text("failed")
        expect(page.get_by_label("Selected module")).to_contain_text("model.layers.2.attention.q_proj")


def test_search_says_how_many_and_shows_the_way_to_each_hit(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(8), tmp_path), "#tab=modules") as page:
        search_for(page, "Search modules", "class:linear q_proj")
        expect(page.get_by_role("status")).to_have_text("8 of 102")
        expect(page.locator(".tree-row.hit").first).to_contain_text("q_proj")
        expect(page.get_by_role("searchbox", name="Search modules")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_label("Selected module")).to_contain_text("model.layers.0.attention.q_proj")
        page.keyboard.press("Shift+Enter")
        expect(page.get_by_label("Selected module")).to_contain_text("model.layers.7.attention.q_proj")


def test_the_tree_can_be_walked_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(4), tmp_path), "#tab=modules") as page:
        page.get_by_role("tree").focus()
        expect(page.get_by_role("tree")).to_be_focused()
        chosen = page.locator('[role=treeitem][aria-selected="true"]')
        page.keyboard.press("End")
        expect(chosen).to_contain_text("lm_head")
        page.keyboard.press("Home")
        expect(chosen).to_have_attribute("aria-level", "1")
        page.keyboard.press("ArrowLeft")
        expect(chosen).to_have_attribute("aria-expanded", "false")
        expect(page.get_by_role("treeitem")).to_have_count(1)
        page.keyboard.press("ArrowRight")
        expect(chosen).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("ArrowDown")
        expect(chosen).to_contain_text("Decoder")
        expect(page.get_by_role("tree")).to_have_attribute("aria-activedescendant", str(chosen.get_attribute("id")))


def test_an_address_leads_to_its_module_and_back_works(browser: Browser, tmp_path: Path) -> None:
    path = page_of(transformer(6), tmp_path)
    with opened(browser, path, "#tab=modules&node=model.layers.3.mlp.gate") as page:
        details = page.get_by_label("Selected module")
        expect(details).to_contain_text("model.layers.3.mlp.gate")
        details.get_by_role("button", name="aten.mm.default").click()
        expect(page.get_by_label("Selected operator")).to_contain_text("43 calls")
        page.get_by_role("button", name="model.layers.5.mlp.down").click()
        expect(details).to_contain_text("model.layers.5.mlp.down")
        page.go_back()
        expect(page.get_by_label("Selected operator")).to_be_visible()
        page.go_back()
        expect(details).to_contain_text("model.layers.3.mlp.gate")


@pytest.mark.heavy
def test_a_tree_of_fifty_thousand_modules_stays_small(browser: Browser, tmp_path: Path) -> None:
    path = page_of(wide_tree(50_000, 1000, distinct=True), tmp_path)
    with opened(browser, path, "#tab=modules") as page:
        assert 0 < rows_in(page, "treeitem") < 500
        page.get_by_role("button", name="Expand all").click()
        expect(page.get_by_role("treeitem").nth(1)).to_be_visible()
        assert 0 < rows_in(page, "treeitem") < 500
        page.get_by_role("searchbox", name="Search modules").fill("part3 class:linear")
        expect(page.get_by_role("status")).to_contain_text(" of ")
        assert 0 < rows_in(page, "treeitem") < 500


def test_the_tree_can_be_saved(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(2), tmp_path), "#tab=modules") as page:
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        lines = Path(download.value.path()).read_text().splitlines()

    assert lines[0].startswith("path,class,parameters")
    assert len(lines) == 31
    assert lines[-1].startswith("lm_head,Linear,64000")
