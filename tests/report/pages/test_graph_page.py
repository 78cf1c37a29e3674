from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened
from tests.report.folders import page_of
from tests.report.traces import transformer, wide_tree

pytestmark = pytest.mark.browser


def test_a_module_opens_on_a_double_click_and_backspace_goes_up(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(12), tmp_path), "#tab=graph") as page:
        page.locator(".box.call", has_text="Decoder").dblclick()
        fold = page.locator(".box.fold")
        expect(fold).to_contain_text("12 \u00d7 layers.0 … 11")
        fold.dblclick()
        expect(page.get_by_role("navigation")).to_contain_text("layers.0")
        page.locator(".box.call").first.press("Backspace")
        expect(fold).to_be_visible()


def test_a_box_tells_where_its_data_comes_from_and_goes_to(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(2), tmp_path), "#tab=modules&node=model.layers.1.attention") as page:
        page.get_by_role("button", name="Show in the graph").click()
        page.locator(".box.op", has_text="scaled_dot_product").click()
        details = page.get_by_label("Selected node")
        expect(details).to_contain_text("is_causal=True")
        expect(details.get_by_role("button", name="q_proj")).to_be_visible()
        details.get_by_role("button", name="o_proj").click()
        expect(page.locator(".box.chosen")).to_contain_text("o_proj")
        expect(page.locator(".edge.lit")).to_have_count(2)
        page.get_by_role("button", name="Follow").click()
        expect(page.locator(".edge.lit")).to_have_count(8)


def test_a_failure_is_marked_by_word_and_sign(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(3, fails_in=1), tmp_path), "#tab=graph&at=1") as page:
        expect(page.locator(".box.failed")).to_contain_text("✕ layers.1")
        expect(page.locator(".box.failed")).to_contain_text("failed")


def test_too_many_parts_are_listed(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(wide_tree(100, 600), tmp_path), "#tab=graph") as page:
        expect(page.locator(".listed")).to_contain_text("too many to draw")
        assert page.locator(".listed [role=row]").count() < 500


@pytest.mark.parametrize(("name", "start"), [("SVG", b"<svg"), ("PNG", b"\x89PNG")])
def test_the_graph_can_be_saved(browser: Browser, tmp_path: Path, name: str, start: bytes) -> None:
    with opened(browser, page_of(transformer(2), tmp_path), "#tab=graph&at=3") as page:
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        content = Path(download.value.path()).read_bytes()

    assert content.startswith(start)
    assert len(content) > 2000


def test_the_graph_can_be_zoomed_and_moved(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(2), tmp_path), "#tab=graph") as page:
        scene = page.locator(".scene")
        before = str(scene.get_attribute("transform"))
        page.get_by_role("button", name="Zoom in").click()
        expect(scene).not_to_have_attribute("transform", before)
        zoomed = str(scene.get_attribute("transform"))
        page.mouse.move(100, 300)
        page.mouse.down()
        page.mouse.move(160, 340, steps=3)
        page.mouse.up()
        expect(scene).not_to_have_attribute("transform", zoomed)
