from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from tests.report.browser import opened
from tests.report.sections.test_port import verdict
from tests.report.sections.test_port import view_of as port_in
from tests.report.sections.test_reference import GOLDEN
from tests.report.sections.test_reference import view_of as reference_in
from torchstone.record.reference import Status, WeightsKind, WeightsSource
from torchstone.report.render import write_report

pytestmark = pytest.mark.browser


def test_the_checklist_is_shown_with_every_check(browser: Browser, tmp_path: Path) -> None:
    reference_in(tmp_path)

    with opened(browser, write_report(tmp_path), "#tab=reference") as page:
        expect(page.get_by_text("1 of 1 boxes")).to_be_visible()
        expect(page.get_by_text("read back")).to_be_visible()
        expect(page.get_by_text("it is quantised").first).to_be_visible()


@pytest.mark.parametrize("tab", ["", "#tab=reference"])
def test_random_weights_are_the_first_thing_on_the_page(tab: str, browser: Browser, tmp_path: Path) -> None:
    source = WeightsSource(kind=WeightsKind.RANDOM)
    weights = msgspec.structs.replace(GOLDEN.weights, source=source)
    reference_in(tmp_path, weights=weights, banner=source.banner)

    with opened(browser, write_report(tmp_path), tab) as page:
        banner = page.locator(".banner:visible")
        expect(banner).to_contain_text("Random weights: the outputs can be reproduced")
        first = page.locator(".card:visible").first
        expect(first).to_contain_text("Checklist")
        above, below = banner.bounding_box(), first.bounding_box()
        assert above is not None
        assert below is not None
        assert above["y"] < below["y"]
        expect(page.locator(".card-title:visible", has_text="Values of the weights")).to_have_count(1)


def test_a_wrong_port_is_seen_in_its_tab_and_in_the_module_tree(browser: Browser, tmp_path: Path) -> None:
    port_in(
        tmp_path,
        verdict("model.layers.0", Status.PASSED, pcc=1.0),
        verdict("model.layers.1", Status.WRONG_VALUES),
        passed=False,
    )
    report = write_report(tmp_path)

    with opened(browser, report, "#tab=port") as page:
        expect(page.get_by_text("model.layers.1", exact=True).first).to_be_visible()
        expect(page.get_by_role("heading", name="PCC in order of execution")).to_have_count(1)
    with opened(browser, report, "#tab=modules") as page:
        expect(page.get_by_role("treeitem", name="DecoderLayer")).to_contain_text("failed")
