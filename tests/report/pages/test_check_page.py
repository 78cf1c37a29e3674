import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.check.results import check_result, finding
from tests.report.browser import Theme, opened
from tests.report.sections.test_check import BAD, check_folder
from torchstone.check.summary import compare
from torchstone.record import codec
from torchstone.report.render import write_report

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tree_is_open_at_the_failure_with_error_script_and_ir(
    browser: Browser, tmp_path: Path, theme: Theme
) -> None:
    report = write_report(check_folder(tmp_path))

    with opened(browser, report, "#tab=check", theme=theme) as page:
        expect(page.get_by_text("Fix this op and 100 % of the model runs", exact=False)).to_be_visible()
        chosen = page.get_by_role("tree", name="Modules by status").locator("[aria-selected=true]")
        expect(chosen).to_contain_text("mlp")
        expect(chosen).to_contain_text("failed")
        details = page.get_by_role("complementary", name="Selected module")
        expect(details).to_contain_text("ended by SIGSEGV")
        expect(details).to_contain_text("<b>dead</b>")
        details.get_by_text("Repro: repros/001_mm.py").click()
        expect(details.get_by_text("print('a script')")).to_be_visible()
        details.get_by_text("IR: aten.txt").click()
        expect(details.get_by_text("graph():")).to_be_visible()


def test_only_what_fails_can_be_shown(browser: Browser, tmp_path: Path) -> None:
    report = write_report(check_folder(tmp_path))

    with opened(browser, report, "#tab=check") as page:
        page.get_by_role("button", name="Failures only").click()
        tree = page.get_by_role("tree", name="Modules by status")
        expect(tree.get_by_role("treeitem", name="mlp")).to_have_count(1)
        expect(tree.get_by_role("treeitem", name="lm_head")).to_have_count(0)
        expect(page).to_have_url(re.compile("status%3Afailed"))


def test_a_link_leads_to_a_module(browser: Browser, tmp_path: Path) -> None:
    report = write_report(check_folder(tmp_path))

    with opened(browser, report, f"#tab=check&unit={BAD.rpartition('.')[0]}") as page:
        expect(page.get_by_role("complementary", name="Selected module")).to_contain_text(BAD.rpartition(".")[0])


def test_the_tree_of_all_modules_shows_the_status_too(browser: Browser, tmp_path: Path) -> None:
    report = write_report(check_folder(tmp_path))

    with opened(browser, report, f"#tab=modules&node={BAD}") as page:
        tree = page.get_by_role("tree", name="Module tree")
        expect(tree.locator("[aria-selected=true]")).to_contain_text("failed")


def test_backends_stand_side_by_side(browser: Browser, tmp_path: Path) -> None:
    found = compare([check_result(), check_result(finding(), backend="other")], ["a", "b"])
    codec.save(tmp_path / "check_comparison.json", found)

    with opened(browser, write_report(tmp_path), "#tab=backends") as page:
        expect(page.get_by_role("columnheader", name="other (torch 2)")).to_be_visible()
        expect(page.locator(".card-value").first).to_have_text("passed")
