"""A real Chromium for tests: a page that logs an error or asks for anything outside its file fails the test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.report.npm import absent

FLAGS = [
    "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = 60_000  # of every wait: a busy machine is slow, and a page that is ready ends the wait at once
OWN_SCHEMES = ("file:", "data:", "blob:", "about:")
Theme = Literal["light", "dark"]


def browser_program() -> str | None:
    """The browser that was named, that of the system, or the newest that Playwright has fetched for itself."""
    installed = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    downloads = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    fetched = sorted(map(str, downloads.glob("chromium-*/chrome-linux*/chrome")))
    return os.environ.get("CHROMIUM") or next(filter(None, installed), None) or (fetched[-1] if fetched else None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser for many pages."""
    path = browser_program()
    if path is None:
        absent("no Chromium is installed: tools/install_browser.sh gets one")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, headless=True, timeout=3 * PATIENCE_MS)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, path: Path, address: str = "", *, theme: Theme = "light", width: int = 1280
) -> Iterator[Page]:
    """A report in a window of its own; what went wrong in it is raised at the end."""
    wrong: list[str] = []
    context = browser.new_context(color_scheme=theme, viewport={"width": width, "height": 800}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on(
        "request", lambda asked: None if asked.url.startswith(OWN_SCHEMES) else wrong.append(f"request: {asked.url}")
    )
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.goto(f"{path.resolve().as_uri()}{address}")
    ready(page)
    yield page
    context.close()
    assert wrong == []


def ready(page: Page) -> None:
    """Wait until the open section is drawn."""
    page.wait_for_selector("html[data-ready]", state="attached")


def search_for(page: Page, label: str, query: str) -> None:
    """Type a query as a reader does: the key that leads to the search box, and the words once it has the cursor."""
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name=label)).to_be_focused()
    page.keyboard.type(query)
    expect(page.get_by_role("searchbox", name=label)).to_have_value(query)


def rows_in(page: Page, role: str) -> int:
    """How many rows have an element, visible or not."""
    return page.locator(f"[role={role}]").count()


def evaluate(page: Page, script: str) -> Any:
    """What a script gives."""
    return page.evaluate(script)
