from pathlib import Path

import pytest

from tests.check.results import check_result, finding
from tests.report.traces import transformer
from torchstone.cost import price
from torchstone.formula.database.files import load_formulas
from torchstone.memory import parse_log
from torchstone.memory.folder import HEALTHY, demo_log
from torchstone.memory.study import Study
from torchstone.memory.usage import find_peaks
from torchstone.record.notebook import MOST_ROWS, html_table


def test_every_cell_is_escaped() -> None:
    page = html_table("<script>", ("<th>",), [("<img>",)], notes=["a & b"])

    assert "<script>" not in page
    assert "<img>" not in page
    assert "&lt;img&gt;" in page
    assert "a &amp; b" in page


def test_rows_that_are_not_shown_are_counted() -> None:
    page = html_table("t", ("n",), [(str(number),) for number in range(MOST_ROWS + 3)])

    assert page.count("<tr>") == MOST_ROWS + 1
    assert "3 more rows" in page


def test_a_trace_shows_its_modules() -> None:
    trace = transformer(2)

    assert f"{len(trace.modules)} modules, {len(trace.ops)} op calls" in trace._repr_html_()


def test_costs_show_the_module_with_the_most_flops_first() -> None:
    page = price(transformer(2))._repr_html_()

    assert page.index("(root)") < page.index("</tr><tr>", page.index("<tbody>"))


def test_a_memory_timeline_shows_its_peaks(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(demo_log(HEALTHY))

    timeline = parse_log(log)
    page = timeline._repr_html_()

    for peak in find_peaks(Study(timeline)):
        assert f"<td>{peak.memory}</td><td>{peak.state.allocated / timeline.ticks_per_mib:.3f}</td>" in page


@pytest.mark.parametrize("name", ["torch.nn.Linear"])
def test_a_formula_shows_its_templates(name: str) -> None:
    entry = load_formulas().find(name)

    assert entry.flop_analysis.formula_template.split()[0] in entry._repr_html_()


def test_a_check_shows_its_findings() -> None:
    page = check_result(finding("aten.mm.default"))._repr_html_()

    assert "<td>aten.mm.default</td>" in page
    assert "<td>wrong</td>" in page
