"""What holds for every section: nothing leaves the page, odd models are shown, both themes, any width, any reader."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.report.browser import PATIENCE_MS, Theme, opened, ready
from tests.report.folders import page_of
from tests.report.npm import node_modules
from tests.report.sections_for_tests import chart_page
from tests.report.traces import HOSTILE, empty_model, hostile_names, one_op, transformer, wide_tree
from torchstone.record.trace import Trace
from torchstone.workflows.api import show

pytestmark = pytest.mark.browser

TABS = ("overview", "modules", "operators", "graph")
ODD = {
    "hostile": hostile_names(),
    "empty": empty_model(),
    "one op": one_op(),
    "failed": transformer(2, fails_in=0),
    "fine": transformer(2),
}


@pytest.mark.parametrize("trace", ODD.values(), ids=ODD.keys())
def test_every_section_of_an_odd_model_opens(browser: Browser, tmp_path: Path, trace: Trace) -> None:
    with opened(browser, page_of(trace, tmp_path)) as page:
        for name in TABS:
            page.locator(f"#tab-{name}").click()
            page.wait_for_selector(f"html[data-ready={name}]", state="attached")
            expect(page.locator(f"#panel-{name}")).to_be_visible()
        assert page.evaluate("document.querySelectorAll('img, script[src], link, iframe').length") == 0


def test_the_page_works_in_the_frame_of_a_notebook(browser: Browser, tmp_path: Path) -> None:
    """The address of such a frame cannot change and it has no storage: its tabs work all the same."""
    page_of(transformer(2), tmp_path)
    notebook = tmp_path / "notebook.html"
    shown = show(tmp_path)._repr_html_()
    notebook.write_text(f"<!doctype html><html data-ready=''><title>notebook</title>{shown}</html>", encoding="utf-8")

    with opened(browser, notebook) as page:
        frame = page.frame_locator("iframe")
        for name in TABS[1:]:
            frame.locator(f"#tab-{name}").click()
            expect(frame.locator(f"#panel-{name}")).to_be_visible()


def test_hostile_names_are_shown_as_they_are(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(hostile_names(), tmp_path), "#tab=modules") as page:
        expect(page.get_by_role("treeitem").nth(1)).to_contain_text(HOSTILE[0])
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE[0])
        page.get_by_role("treeitem").nth(4).click()
        expect(page.get_by_label("Selected module").get_by_role("heading", level=2)).to_have_text(HOSTILE[3])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def axe_findings(page: Page, within: str = "html") -> list[str]:
    """What axe-core finds in the elements that a selector names."""
    script = (node_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(script)
    found = page.evaluate("within => axe.run(within, { resultTypes: ['violations'] })", within)
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_no_barrier_is_found(browser: Browser, tmp_path: Path, theme: Theme, width: int) -> None:
    path = page_of(transformer(3, fails_in=1), tmp_path)
    chosen = {
        "modules": "&node=model.layers.0",
        "operators": "&op=aten.mm.default",
        "graph": "&at=1&box=1",
        "overview": "",
    }
    for name, more in chosen.items():
        with opened(browser, path, f"#tab={name}{more}", theme=theme, width=width) as page:
            assert axe_findings(page) == [], name


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_barrier_is_found_in_charts(browser: Browser, tmp_path: Path, theme: Theme) -> None:
    with opened(browser, chart_page(500, tmp_path), theme=theme) as page:
        assert axe_findings(page) == []


@pytest.mark.parametrize("name", TABS)
def test_a_narrow_window_never_scrolls_sideways(browser: Browser, tmp_path: Path, name: str) -> None:
    with opened(browser, page_of(transformer(3), tmp_path), f"#tab={name}", width=400) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_theme_follows_the_system_until_the_reader_decides(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(one_op(), tmp_path), theme="dark") as page:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.get_by_role("button", name="Switch between light and dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        light = page.evaluate(ground)
        page.reload()
        ready(page)
        assert dark != light == page.evaluate(ground)


def test_help_opens_with_a_question_mark_and_keys_lead_to_sections(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(one_op(), tmp_path)) as page:
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("Help and keys")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        page.keyboard.press("3")
        expect(page.locator("#panel-operators")).to_be_visible()
        page.locator("#tab-operators").press("ArrowLeft")
        expect(page.locator("#panel-modules")).to_be_visible()


def test_a_key_pressed_while_a_section_is_drawn_is_not_lost(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(2), tmp_path)) as page:
        page.evaluate(
            "document.getElementById('tab-modules').click();"
            "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }));"
        )
        expect(page.get_by_role("searchbox", name="Search modules")).to_be_focused()


def test_a_section_that_is_drawn_late_does_not_pass_for_the_shown_one(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(2), tmp_path)) as page:
        page.evaluate("for (const name of ['modules', 'overview']) document.getElementById(`tab-${name}`).click()")
        expect(page.locator("#panel-modules .tree")).to_be_attached()
        expect(page.locator("#panel-modules")).not_to_have_class(re.compile("loading"))
        expect(page.locator("#panel-overview")).to_be_visible()
        assert page.locator("html").get_attribute("data-ready") == "overview"


def test_a_page_without_source_says_so(browser: Browser, tmp_path: Path) -> None:
    path = page_of(transformer(2, fails_in=1), tmp_path, source=False)
    with opened(browser, path) as page:
        expect(page.get_by_text("Rendered with --no-source")).to_be_visible()
        assert "/models/net.py" not in page.evaluate("document.body.innerText")


def test_a_page_can_be_printed_whole(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(transformer(3), tmp_path)) as page:
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).overflowY") == "visible"
        assert page.pdf().startswith(b"%PDF")


def test_data_of_another_form_is_refused_with_a_sentence(browser: Browser, tmp_path: Path) -> None:
    path = page_of(one_op(), tmp_path)
    path.write_bytes(path.read_bytes().replace(b'torchstone/page/1"', b'torchstone/page/99"', 1))
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.locator("#panels")).to_contain_text("render it again with torchstone report")
    context.close()


def test_a_model_of_common_size_is_small(browser: Browser, tmp_path: Path) -> None:
    path = page_of(wide_tree(5000, 10_000, distinct=True), tmp_path)
    assert path.stat().st_size < 3_000_000
    with opened(browser, path, "#tab=modules") as page:
        expect(page.get_by_role("treeitem").first).to_be_visible()
