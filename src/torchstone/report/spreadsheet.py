"""A report -> CSV files, one per table and one for the module tree; the same rules as the page's own export."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from torchstone.report.page import Report
from torchstone.report.section import Shown, Table
from torchstone.report.sections import modules

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would take for a formula


def render_csv(report: Report) -> Mapping[str, bytes]:
    """File names and contents."""
    tables = [table for view in report.sections for table in view.tables if table.title]
    files = {f"{table.name}.csv": _table(table) for table in tables}
    tree = next((view.document["modules"] for view in report.sections if view.name == modules.NAME), None)
    if tree is not None:
        columns = [[row["path"] for row in tree], [row["class"] for row in tree]]
        columns += [list(column.values) for column in report.module_columns]
        names = ["path", "class", *(column.name for column in report.module_columns)]
        files[f"{modules.NAME}.csv"] = write_csv(names, zip(*columns, strict=True))
    return files


def _table(table: Table) -> bytes:
    shown = [column for column in table.columns if column.shown is not Shown.HIDDEN]
    return write_csv([column.name for column in shown], zip(*(column.values for column in shown), strict=True))


def write_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """One CSV file; a value that is not known is empty, a text that looks like a formula is marked as text."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([_safe(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA_STARTS) else value
