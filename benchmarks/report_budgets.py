"""What the report costs to write and to open, beside its budgets.

Run from the root of the repository: `PYTHONPATH=src:. python benchmarks/report_budgets.py`. It needs Chromium and
playwright. Sizes are exact; times depend on the machine, so no test holds them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from playwright.sync_api import Browser, Page

from tests.report.browser import chromium, opened
from tests.report.folders import page_of
from tests.report.sections_for_tests import PEAK_BYTES, chart_page
from tests.report.traces import empty_model, wide_tree
from torchstone.record.trace import Trace

TIMED = "(act) => { const start = performance.now(); act(); return performance.now() - start; }"
SEARCH = (
    "() => { const box = document.querySelector('.search'); box.value = 'part3 class:linear';"
    "box.dispatchEvent(new Event('input')); }"
)
OPEN_ALL = "() => document.querySelector('[title=\"Open all\"]').click()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number beside its budget."""

    what: str
    value: float
    budget: float
    unit: str

    def __str__(self) -> str:
        verdict = "ok" if self.value <= self.budget else "OVER"
        return f"{self.what:<58}{self.value:>12,.2f} {self.unit:<5}{self.budget:>10,.2f}  {verdict}"


def main() -> None:
    """Print every measure."""
    print(f"{'':<58}{'measured':>12} {'':<5}{'budget':>10}")
    with TemporaryDirectory() as folder, chromium() as browser:
        opened_once(browser, Path(folder) / "warm")
        for measure in measures(browser, Path(folder)):
            print(measure, flush=True)


def opened_once(browser: Browser, folder: Path) -> None:
    """The first page pays for the browser's start."""
    with opened(browser, page_of(empty_model(), folder)):
        pass


def measures(browser: Browser, folder: Path) -> Iterator[Measure]:
    """All measures, in the order of the budgets."""
    yield from common(browser, folder / "common")
    yield from tree(browser, folder / "tree")
    yield from series(browser, folder / "series")


def _rendered(trace: Trace, folder: Path) -> tuple[Path, float]:
    started = monotonic()
    return page_of(trace, folder), monotonic() - started


def common(browser: Browser, folder: Path) -> Iterator[Measure]:
    """Small and common reports."""
    empty, _ = _rendered(empty_model(), folder / "empty")
    yield Measure(what="empty report", value=empty.stat().st_size / 1e6, budget=2.5, unit="MB")
    (folder / "charted").mkdir()
    charted = chart_page(10, folder / "charted")
    yield Measure(what="smallest report with charts", value=charted.stat().st_size / 1e6, budget=2.5, unit="MB")
    page, seconds = _rendered(wide_tree(5_000, 10_000, distinct=True), folder / "usual")
    yield Measure(what="10,000 ops, 5,000 modules: file", value=page.stat().st_size / 1e6, budget=3, unit="MB")
    yield Measure(what="10,000 ops, 5,000 modules: render", value=seconds, budget=10, unit="s")
    for tab in ("overview", "modules", "operators", "graph"):
        with opened(browser, page, f"#tab={tab}") as shown:
            value = _usable_s(shown)
        yield Measure(what=f"10,000 ops, 5,000 modules: {tab} usable", value=value, budget=1.5, unit="s")


def tree(browser: Browser, folder: Path) -> Iterator[Measure]:
    """A tree of 50,000 modules."""
    page_path, seconds = _rendered(wide_tree(50_000, 1_000, distinct=True), folder)
    yield Measure(what="50,000 modules: file", value=page_path.stat().st_size / 1e6, budget=3, unit="MB")
    yield Measure(what="50,000 modules: render", value=seconds, budget=20, unit="s")
    with opened(browser, page_path, "#tab=modules") as page:
        yield Measure(what="50,000 modules: first rows", value=_usable_s(page), budget=1, unit="s")
        yield Measure(what="50,000 modules: open all", value=_timed(page, OPEN_ALL), budget=150, unit="ms")
        yield Measure(what="50,000 modules: search", value=_timed(page, SEARCH), budget=150, unit="ms")
        yield Measure(
            what="50,000 modules: DOM rows", value=page.locator("[role=treeitem]").count(), budget=500, unit=""
        )


def series(browser: Browser, folder: Path) -> Iterator[Measure]:
    """A chart of a million points."""
    folder.mkdir()
    started = monotonic()
    path = chart_page(1_000_000, folder)
    yield Measure(what="1,000,000 points x 2: render", value=monotonic() - started, budget=10, unit="s")
    yield Measure(what="1,000,000 points x 2: file", value=path.stat().st_size / 1e6, budget=8, unit="MB")
    with opened(browser, path) as page:
        yield Measure(what="1,000,000 points: usable", value=_usable_s(page), budget=4, unit="s")
        started = monotonic()
        page.evaluate("torchstone.state.set({ zoom: '700000-800000' })")
        page.wait_for_selector(".chart[data-drawn='700000-800001']")
        yield Measure(what="1,000,000 points: zoom", value=monotonic() - started, budget=1, unit="s")
        shown = int(page.locator(".told").first.get_attribute("data-peak") or -1)
        yield Measure(
            what="1,000,000 points: error of the shown peak", value=abs(shown - PEAK_BYTES), budget=0, unit="B"
        )
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        yield Measure(what="1,000,000 points: heap", value=heap, budget=150, unit="MB")


def _usable_s(page: Page) -> float:
    """From the start of loading until the section is drawn and answers."""
    return float(page.evaluate("performance.getEntriesByName('ready')[0].startTime")) / 1000


def _timed(page: Page, act: str) -> float:
    return float(page.evaluate(f"({TIMED})({act})"))


if __name__ == "__main__":
    main()
