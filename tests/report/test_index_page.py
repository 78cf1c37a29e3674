import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import PATIENCE_MS, search_for
from tests.report.folders import page_of
from tests.report.traces import hostile_names, one_op, transformer
from torchstone.report.index_page import State, render_index, reports_in


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


def test_reports_are_listed_with_title_state_size_and_date(tmp_path: Path) -> None:
    page = page_of(transformer(2, fails_in=1), tmp_path / "runs" / "a")
    os.utime(page, (0, 86_400))
    page_of(one_op(), tmp_path / "runs" / "b")

    newest, oldest = reports_in(tmp_path)

    assert (newest.title, newest.path, newest.state) == ("one-op", "runs/b/report.html", State.FINE)
    assert (oldest.title, oldest.state, oldest.modified) == ("toy-transformer-2", State.FAILED, "1970-01-02T00:00:00Z")
    assert oldest.size_bytes == page.stat().st_size


@pytest.mark.parametrize(
    ("twin", "state"),
    [
        ('{"schema": "torchstone/report/99", "title": "later"}', State.NEWER),
        ('{"schema": "torchstone/trace/1"}', State.UNKNOWN),
        ("[1, 2", State.UNKNOWN),
        ("[]", State.UNKNOWN),
        (json.dumps({"schema": "torchstone/report/1", "title": 5}), State.UNKNOWN),
        ("\udcff", State.UNKNOWN),
    ],
)
def test_a_twin_that_cannot_be_read_is_said_to_be_unknown(tmp_path: Path, twin: str, state: State) -> None:
    (tmp_path / "odd.html").write_text("<p>")
    (tmp_path / "odd.json").write_bytes(twin.encode(errors="surrogateescape"))

    assert [(one.state, one.title) for one in reports_in(tmp_path)] == [(state, "odd")]


def test_hidden_folders_and_links_that_lead_out_are_left_aside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    (inside / ".hidden").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.html").write_text("<p>")
    (inside / ".hidden" / "a.html").write_text("<p>")
    (inside / "link.html").symlink_to(outside / "secret.html")
    (inside / "linked").symlink_to(outside)

    assert reports_in(inside) == ()
