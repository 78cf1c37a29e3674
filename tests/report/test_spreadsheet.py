import csv
import io
import json
from pathlib import Path

from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.report.page import assemble
from torchstone.report.render import SECTIONS
from torchstone.report.section import ReportFolder
from torchstone.report.spreadsheet import render_csv, write_csv

VECTORS = Path(__file__).parent / "vectors" / "csv.json"


def test_python_and_the_page_write_the_same_csv() -> None:
    vector = json.loads(VECTORS.read_text())

    assert write_csv(list(vector["columns"]), zip(*vector["columns"].values(), strict=True)).decode() == vector["csv"]


def test_there_is_a_file_for_the_tree_and_for_each_table(tmp_path: Path) -> None:
    trace = transformer(2)
    files = render_csv(assemble(ReportFolder(folder_of(trace, tmp_path)), SECTIONS))
    tree = list(csv.DictReader(io.StringIO(files["modules.csv"].decode())))
    operators = list(csv.DictReader(io.StringIO(files["operators.csv"].decode())))

    assert [row["path"] for row in tree] == [module.path for module in trace.modules]
    assert tree[-1]["parameters"] == "64000"
    assert sum(int(row["calls"]) for row in operators) == len(trace.ops)
