import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import jinja2
import pytest

from tests.report.folders import folder_of
from tests.report.traces import HOSTILE, hostile_names, transformer
from torchstone.record.trace import Trace
from torchstone.report.page import SCRIPTS, assemble, asset, for_script, plotly_source, policy, render_page, templates
from torchstone.report.render import SECTIONS
from torchstone.report.section import ModuleColumn, ReportFolder, Section, SectionView, Shown


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


def test_the_library_comes_from_the_installed_package() -> None:
    source = plotly_source()

    assert source is not None
    assert "Plotly" in source


def test_a_policy_names_each_script_by_its_content() -> None:
    assert policy("a").count("sha256-") == 1
    assert policy("a", "b").count("sha256-") == 2
    assert policy("a") != policy("b")
    assert "unsafe-inline" not in policy("a").partition("style-src")[0]


def test_json_for_a_script_cannot_end_it() -> None:
    text = for_script({"name": "</script><!--"})

    assert "<" not in text
    assert "\\u003c/script" in text


def test_templates_escape_and_refuse_unknown_names() -> None:
    assert templates().from_string("{{ name }}").render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(jinja2.UndefinedError):
        templates().from_string("{{ missing }}").render()


def test_assets_are_files() -> None:
    assert asset("m4.js").startswith("/*")


def extra(folder: ReportFolder) -> SectionView:
    values = list(range(len(folder.trace.modules)))
    column = ModuleColumn(name="extra", title="Extra", values=values, shown=Shown.COUNT)
    return SectionView(name="extra", title="Extra", document={"n": len(values)}, module_columns=(column,))


EXTRA = Section(name="extra", files=("trace.json", "*_extra.json"), build=extra)


def test_only_sections_whose_files_are_there_are_built(tmp_path: Path) -> None:
    folder = folder_of(transformer(2), tmp_path)
    without = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))
    (folder / "net_extra.json").write_text("{}")
    with_it = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))

    assert "extra" not in [view.name for view in without.sections]
    assert [view.name for view in with_it.sections][-1] == "extra"


def test_columns_of_all_sections_are_spread_over_the_tree(tmp_path: Path) -> None:
    folder = folder_of(transformer(2), tmp_path)
    (folder / "net_extra.json").write_text("{}")
    report = assemble(ReportFolder(folder), (*SECTIONS, EXTRA))

    assert report.module_table is not None
    names = [column.name for column in report.module_table.columns]
    assert "extra" in names
    assert names[-2:] == ["outputs", "inputs"], "long texts last"
    assert report.module_table.rows == len(ReportFolder(folder).trace.modules) + 1, "one row for the run of layers"


def test_a_folder_without_a_trace_is_named_after_itself(tmp_path: Path) -> None:
    folder = tmp_path / "my-run"
    folder.mkdir()
    (folder / "data.json").write_text("{}")
    alone = Section(
        name="alone", files=("data.json",), build=lambda _: SectionView(name="alone", title="Alone", document={})
    )
    report = assemble(ReportFolder(folder), (alone,))

    assert (report.title, report.failed, report.module_table) == ("my-run", False, None)
