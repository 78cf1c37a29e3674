"""Every tab that a page can have, in both themes and at two widths: no barrier, no error, nothing that sticks out."""

from pathlib import Path

import msgspec
import pytest
import torch
from playwright.sync_api import Browser

from tests.attacks.corpora import analysis
from tests.check.results import check_result, finding, module
from tests.cost.devices import device
from tests.memory.log_generator.demo import healthy_log
from tests.memory.timelines import study_of
from tests.record.test_cost import sweep_of
from tests.report.browser import Theme, opened
from tests.report.folders import folder_of
from tests.report.memory_folders import memory_folder
from tests.report.pages.test_shell_page import axe_findings
from tests.report.sections.test_port import verdict
from tests.report.sections.test_reference import GOLDEN
from tests.report.sections.test_sweep import RUNS
from tests.report.sections.test_tenstorrent import MAPPING
from tests.report.view.test_source_lines import Net
from torchstone.capture.capture_model import capture
from torchstone.check.summary import compare as compare_checks
from torchstone.cost import price
from torchstone.cost.roofline import predict
from torchstone.memory.compare import compare as compare_memory
from torchstone.record.codec import save
from torchstone.record.reference import Box, Check, Checklist, Comparison, Status
from torchstone.record.trace import Trace
from torchstone.record.vector import SweepHistory
from torchstone.report.render import SECTIONS, write_report
from torchstone.workflows.diff import diff_folders

pytestmark = pytest.mark.browser
NARROW = 640  # px, as in report.css
CUT_TITLES = """panel => [...document.querySelectorAll(`${panel} .table-head .table-cell, ${panel} .tree-head span`)]
    .filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
    .map(one => "the title is cut: " + one.textContent)"""
MOST_BYTES = 6_000_000  # of a page with every tab; four of them are the chart library


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a document for each section."""
    path = tmp_path_factory.mktemp("everything")
    other = tmp_path_factory.mktemp("other")
    trace = capture(Net(), torch.zeros(4, 8))
    _capture_and_check(trace, path)
    _capture_and_check(capture(Net(), torch.zeros(2, 8)), other)
    diff_folders(path, other, path)
    check = Check(title="read back", passed=False, detail="1 of 2")
    boxes = (Box(name="golden_data", title="Golden data", files=(), checks=(check,)),)
    verdicts = (verdict("wide", Status.PASSED), verdict("narrow", Status.WRONG_VALUES))
    for name, document in {
        "analysis.json": analysis(),
        "cost_sweep.json": sweep_of(128, 1024, hardware="A device"),
        "mapping.json": MAPPING,
        "check_comparison.json": compare_checks([check_result(), check_result(finding(), backend="b")], ["a", "b"]),
        "golden_data.json": GOLDEN,
        "checklist.json": Checklist(model="toy", complete=False, boxes=boxes),
        "comparison.json": Comparison(
            model="toy", candidate="port.npz", passed=False, first_wrong="modules/narrow/outputs",
            first_wrong_module="narrow", verdicts=verdicts,
        ),
        "sweep_history.json": SweepHistory(runs=RUNS),
        "memory_comparison.json": compare_memory(study_of(3)[0], study_of(8)[0]),
    }.items():  # fmt: skip
        save(path / name, document)
    memory_folder(healthy_log(), path)
    return write_report(path)


def _capture_and_check(trace: Trace, path: Path) -> None:
    folder_of(trace, path)
    table = price(trace)
    save(path / "cost.json", msgspec.structs.replace(table, prediction=predict(trace, table, device())))
    modules = tuple(
        module(one.path, "failed" if one.path else "skipped", class_name=one.class_name, container=one.container)
        for one in trace.modules
    )
    save(path / "check.json", check_result(finding(modules=("mod_wide",), module_path="wide"), modules=modules))


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 400)])
def test_no_tab_has_a_barrier_an_error_or_a_part_outside(
    browser: Browser, everything: Path, theme: Theme, width: int
) -> None:
    with opened(browser, everything, theme=theme, width=width) as page:
        tabs = [
            name.removeprefix("tab-") for name in page.locator("[role=tab]").evaluate_all("all => all.map(t => t.id)")
        ]
        assert tabs == [section.name for section in SECTIONS]
        found: dict[str, list[str]] = {}
        for name in tabs:
            page.evaluate(f"location.hash = '#tab={name}'")
            page.wait_for_selector(f"html[data-ready={name}]", state="attached")
            found[name] = axe_findings(page, f"#panel-{name}")
            if page.evaluate("document.documentElement.scrollWidth") > width:
                found[name].append("it is wider than the window")
            if width > NARROW:
                found[name] += page.evaluate(CUT_TITLES, f"#panel-{name}")
        assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_page_with_every_tab_stays_within_its_budget(everything: Path) -> None:
    assert everything.stat().st_size < MOST_BYTES
