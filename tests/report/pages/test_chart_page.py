from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.report.browser import opened
from tests.report.sections_for_tests import PEAK_BYTES, PEAK_ROW, chart_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart_page(1_000_000, tmp_path_factory.mktemp("million"))


def expect_shown_peak(page: Page, peak: int, row: int) -> None:
    readout = page.locator(".chart:not([hidden]) .readout")
    expect(readout).to_have_attribute("data-peak", str(peak))
    expect(readout).to_have_attribute("data-row", str(row))


def drawn_peak(page: Page) -> float:
    return float(page.evaluate("Math.max(...document.querySelector('.plot').data[0].y)"))


def test_a_million_points_are_a_few_thousand_and_show_the_true_peak(browser: Browser, million: Path) -> None:
    with opened(browser, million) as page:
        expect_shown_peak(page, PEAK_BYTES, PEAK_ROW)
        assert drawn_peak(page) == PEAK_BYTES
        assert page.evaluate("document.querySelector('.plot').data[0].x.length") < 10_000
    assert million.stat().st_size < 8_000_000


@pytest.mark.parametrize("zoom", ["0-999999", "700000-800000", "765000-766000", "765432-765432", "765400-765460"])
def test_the_shown_peak_is_the_true_one_at_any_zoom(browser: Browser, million: Path, zoom: str) -> None:
    with opened(browser, million, f"#zoom={zoom}") as page:
        expect_shown_peak(page, PEAK_BYTES, PEAK_ROW)
        assert drawn_peak(page) == PEAK_BYTES


def test_zooming_with_the_mouse_redraws_from_the_full_data(browser: Browser, million: Path) -> None:
    with opened(browser, million) as page:
        frame = page.locator(".plot .nsewdrag").bounding_box()
        assert frame is not None
        page.mouse.move(frame["x"] + frame["width"] * 0.2, frame["y"] + 100)
        page.mouse.down()
        page.mouse.move(frame["x"] + frame["width"] * 0.4, frame["y"] + 100, steps=4)
        page.mouse.up()
        page.wait_for_function("() => location.hash.includes('zoom=')")
        page.wait_for_function("() => document.querySelector('.chart').dataset.drawn !== '0-1000000'")
        lo, hi = map(int, str(page.locator(".chart").get_attribute("data-drawn")).split("-"))
        assert (150_000 < lo < 250_000, 350_000 < hi < 450_000) == (True, True)
        page.get_by_role("button", name="Reset zoom").click()
        page.wait_for_function("() => document.querySelector('.chart').dataset.drawn === '0-1000000'")


def test_nothing_can_leave_the_chart(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(100, tmp_path)) as page:
        context = page.evaluate(
            "(({showSendToCloud, plotlyServerURL, displaylogo}) => ({showSendToCloud, plotlyServerURL, displaylogo}))"
            "(document.querySelector('.plot')._context)"
        )
        assert context == {"showSendToCloud": False, "plotlyServerURL": "", "displaylogo": False}
        expect(page.locator(".plot .nsewdrag").first).to_be_attached()
        assert page.locator(".modebar-btn").count() == 0
        assert page.locator(".plot a[href]").count() == 0
        assert page.evaluate("Object.isFrozen(torchstone.chart.LOCKED)")


def test_tabs_switch_the_chart_and_keep_the_zoom(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(5000, tmp_path), "#zoom=100-199") as page:
        page.get_by_role("group", name="Charts").get_by_role("button", name="L1").click()
        expect(page.locator("[data-chart=memory-L1]")).to_have_attribute("data-drawn", "100-200")
        expect(page.locator("[data-chart=memory-DRAM]")).to_be_hidden()
        page.go_back()
        expect(page.locator("[data-chart=memory-DRAM]")).to_be_visible()


def test_of_two_quick_steps_the_later_one_counts(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(5000, tmp_path)) as page:
        page.evaluate(
            "const [first, second] = document.querySelectorAll('.chart-tabs button');"
            "for (const one of [second, first, second]) one.click();"
        )
        expect(page.locator("[data-chart=memory-L1]")).to_have_attribute("data-drawn", "0-5000")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        expect(page.locator("[data-chart=memory-L1]")).to_be_visible()
        expect(page.locator("[data-chart=memory-DRAM]")).to_be_hidden()


def test_a_chosen_row_is_chosen_in_chart_and_table(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(5000, tmp_path), "#row=4321") as page:
        expect(page.locator('[role=row][aria-selected="true"]')).to_contain_text("ttnn.<b>op_33")
        expect(page.locator(".plot .annotation", has_text="operation 4,321")).to_be_visible()


def test_the_chart_follows_the_theme(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(100, tmp_path)) as page:
        before = page.evaluate("document.querySelector('.plot').data[0].line.color")
        page.get_by_role("button", name="Switch between light and dark").click()
        page.wait_for_function(f"() => document.querySelector('.plot').data[0].line.color !== '{before}'")


def test_a_chart_can_be_saved(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(100, tmp_path)) as page:
        with page.expect_download() as download:
            page.locator(".chart:not([hidden])").get_by_role("button", name="PNG").click()
        assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_a_chart_without_rows_says_so(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, chart_page(0, tmp_path)) as page:
        expect(page.locator(".chart").first).to_contain_text("No data to plot")


def test_without_the_library_the_page_says_which_part_to_install(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchstone.report.page.plotly_source", lambda: None)
    with opened(browser, chart_page(100, tmp_path)) as page:
        expect(page.locator(".chart").first).to_contain_text("pip install 'torchstone[report]'")
        expect_shown_peak(page, PEAK_BYTES, 99)
