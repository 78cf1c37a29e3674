"""A page that is served loads itself again when its file changes; a page that is a file asks for nothing."""

from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import PATIENCE_MS, ready
from tests.report.folders import folder_of, page_of
from tests.report.traces import transformer
from torchstone.report.render import write_report
from torchstone.report.server import open_server

pytestmark = pytest.mark.browser


def test_a_served_page_shows_a_new_result_on_the_same_tab(browser: Browser, tmp_path: Path) -> None:
    page_of(transformer(2), tmp_path)
    server = open_server(tmp_path, host="127.0.0.1", port=8970, token="")
    Thread(target=server.serve_forever, daemon=True).start()
    context = browser.new_context()
    try:
        page = context.new_page()
        wrong: list[str] = []
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(f"{server.url}report.html#tab=modules")
        ready(page)
        expect(page.get_by_role("treeitem", name="0 … 1")).to_be_visible(timeout=PATIENCE_MS)

        write_report(folder_of(transformer(5), tmp_path))

        expect(page.get_by_role("treeitem", name="0 … 4")).to_be_visible(timeout=PATIENCE_MS)
        assert page.url.endswith("#tab=modules")
        assert wrong == []
    finally:
        context.close()
        server.shutdown()
        server.server_close()
