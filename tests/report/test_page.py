import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import HOSTILE, hostile_names, transformer
from torchstone.record.trace import Trace
from torchstone.report.page import SCRIPTS, assemble, asset, render_page
from torchstone.report.render import SECTIONS
from torchstone.report.section import ReportFolder


def html_of(trace: Trace, path: Path) -> str:
    return render_page(assemble(ReportFolder(folder_of(trace, path)), SECTIONS)).decode()


def test_only_the_scripts_of_the_page_may_run(tmp_path: Path) -> None:
    html = html_of(transformer(1), tmp_path)
    code = re.search(r"<script>(.*?)</script>", html, re.DOTALL)
    assert code is not None
    digest = b64encode(sha256(code[1].encode()).digest()).decode()

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert f"script-src &#39;sha256-{digest}&#39;;" in policy[1]
    assert "default-src &#39;none&#39;" in policy[1]


def test_no_address_of_another_machine_stands_in_the_page(tmp_path: Path) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'`]+", html_of(transformer(1), tmp_path)))

    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of SVG is a name, never fetched"


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    html = html_of(hostile_names(), tmp_path)

    assert HOSTILE[0] not in html
    assert "<b>bold" not in html
    assert html.count("<script") == html.count("</script>")


def test_the_index_lists_sections_and_module_columns(tmp_path: Path) -> None:
    html = html_of(transformer(1), tmp_path)
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    index = json.loads(found[1])

    assert [section["name"] for section in index["sections"]][:3] == ["overview", "modules", "operators"]
    assert "parameters" in [column["name"] for column in index["module_columns"]]


def test_every_script_is_small_and_none_can_end_its_element() -> None:
    for name in SCRIPTS:
        assert asset(name).count("\n") < 400, name
        assert "</script" not in asset(name), name


def test_a_page_without_charts_does_not_carry_the_chart_library(tmp_path: Path) -> None:
    html = html_of(transformer(1), tmp_path)

    assert len(html) < 200_000
    assert 'id="plotly"' not in html
