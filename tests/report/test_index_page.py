from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import PATIENCE_MS, search_for
from tests.report.folders import page_of
from tests.report.traces import hostile_names, one_op
from torchstone.report.index_page import render_index


def test_an_empty_folder_says_how_to_make_a_report(tmp_path: Path) -> None:
    assert b"torchstone inspect MODEL --dir" in render_index(tmp_path)


def test_names_are_escaped_in_text_and_address(tmp_path: Path) -> None:
    page_of(hostile_names(), tmp_path / "a b<i>")
    html = render_index(tmp_path).decode()

    assert "<img" not in html
    assert 'href="/a%20b%3Ci%3E/report.html"' in html


@pytest.mark.browser
def test_the_index_can_be_searched(browser: Browser, tmp_path: Path) -> None:
    for name in ("llama", "bert", "resnet"):
        page_of(one_op(), tmp_path / name)
    index = tmp_path / "index.html"
    index.write_bytes(render_index(tmp_path))
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(index.as_uri())
    search_for(page, "Search reports", "bert fine")
    expect(page.get_by_role("status")).to_have_text("1 of 3")
    expect(page.locator(".report-row:visible")).to_contain_text("bert/report.html")
    context.close()
