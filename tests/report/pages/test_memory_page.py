from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.memory.log_generator.demo import failing_log, healthy_log
from tests.memory.log_generator.long import long_log
from tests.report.browser import opened
from tests.report.memory_folders import memory_folder
from tests.report.pages.test_chart_page import drawn_peak
from torchstone.report.page import assemble, render_page
from torchstone.report.render import SECTIONS
from torchstone.report.section import ReportFolder

pytestmark = pytest.mark.browser


def page_of(folder: ReportFolder) -> Path:
    page = folder.path / "net_report.html"
    page.write_bytes(render_page(assemble(folder, SECTIONS)))
    return page


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(memory_folder(healthy_log(), tmp_path_factory.mktemp("healthy")))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(memory_folder(b"".join(long_log(100_000)), tmp_path_factory.mktemp("long")))


def test_memory_over_time_shows_the_true_peak(browser: Browser, healthy: Path) -> None:
    with opened(browser, healthy) as page:
        peak_bytes = round(10125 * (1 << 20) / 1000)
        first = page.locator(".chart:not([hidden]) .readout").first
        expect(first).to_have_attribute("data-peak", str(peak_bytes))
        assert drawn_peak(page) == peak_bytes
        expect(page.get_by_text("10.125 MiB", exact=True).first).to_be_visible()


def test_each_memory_has_its_own_tab(browser: Browser, healthy: Path) -> None:
    with opened(browser, healthy) as page:
        page.get_by_role("button", name="L1", exact=True).click()
        expect(page.get_by_role("heading", name="L1 per bank, before each op")).to_be_visible()
        expect(page.get_by_role("heading", name="DRAM per bank, before each op")).to_be_hidden()


@pytest.mark.parametrize(
    ("tab", "words"),
    [
        ("peaks", "blocks.0.mlp.fc1.weight"),
        ("padding", "last dim 2 padded to 32: 16x"),
        ("inputs", "blocks.1.mlp.fc2.weight"),
    ],
)
def test_the_other_tabs_name_what_matters(browser: Browser, healthy: Path, tab: str, words: str) -> None:
    with opened(browser, healthy, f"#tab={tab}") as page:
        expect(page.get_by_text(words).first).to_be_visible()


def test_a_failure_is_seen_at_once(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, page_of(memory_folder(failing_log(), tmp_path)), theme="dark") as page:
        expect(page.get_by_text("Out of memory", exact=True)).to_be_visible()
        expect(page.get_by_text("needed 3.91 MiB")).to_be_visible()


@pytest.mark.heavy
def test_a_hundred_thousand_ops_fit_in_a_page_and_keep_the_peak_at_any_zoom(browser: Browser, long: Path) -> None:
    assert long.stat().st_size < 4_000_000
    with opened(browser, long) as page:
        peak, row = (
            int(page.locator(".readout").first.get_attribute(f"data-{name}") or -1) for name in ("peak", "row")
        )
        assert drawn_peak(page) == peak
    with opened(browser, long, f"#zoom={row - 40}-{row + 40}") as page:
        expect(page.locator(".readout").first).to_have_attribute("data-peak", str(peak))
