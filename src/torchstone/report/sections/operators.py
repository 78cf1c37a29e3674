"""The operators, their shapes, and the modules that call them."""

from collections.abc import Sequence

from torchstone.report.section import Column, ReportFolder, SectionView, Shown, Table
from torchstone.report.view.overview import (
    OperatorRow,
    UseRow,
    VariantRow,
    operator_document,
    operator_rows,
    use_rows,
    variant_rows,
)

NAME = "operators"


def build(folder: ReportFolder) -> SectionView:
    """The view of the operator table."""
    rows = operator_rows(folder.trace)
    variants = variant_rows(folder.trace)
    return SectionView(
        name=NAME,
        title="Operators",
        document={
            "operators": [operator_document(row) for row in rows],
            "variants": [
                {"op": row.op, "arguments": row.arguments, "output": row.output, "calls": row.calls} for row in variants
            ],
        },
        tables=(_operators(rows), _variants(variants), _uses(use_rows(folder.trace))),
        script="operators.js",
    )


def _operators(rows: Sequence[OperatorRow]) -> Table:
    backward = [row.backward_calls for row in rows]
    return Table(
        name="operators",
        title="Operators",
        empty="No op was called.",
        columns=(
            Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.OP),
            Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
            Column(name="variants", title="Signatures", values=[row.variants for row in rows], shown=Shown.COUNT),
            Column(name="modules", title="Modules", values=[row.modules for row in rows], shown=Shown.COUNT),
            Column(
                name="backward",
                title="In backward",
                values=backward,
                shown=Shown.COUNT if any(backward) else Shown.HIDDEN,
            ),
            Column(name="dtypes", title="Result dtypes", values=[row.dtypes for row in rows], shown=Shown.TEXT),
        ),
    )


def _variants(rows: Sequence[VariantRow]) -> Table:
    return Table(
        name="variants",
        columns=(
            Column(name="signature", values=[row.signature for row in rows]),
            Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.OP),
            Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
            Column(name="arguments", title="Arguments", values=[row.arguments for row in rows], shown=Shown.TEXT),
            Column(name="output", title="Result", values=[row.output for row in rows], shown=Shown.TEXT),
        ),
    )


def _uses(rows: Sequence[UseRow]) -> Table:
    return Table(
        name="uses",
        columns=(
            Column(name="op", title="Operator", values=[row.op for row in rows], shown=Shown.OP),
            Column(name="module", title="Module", values=[row.module for row in rows], shown=Shown.MODULE),
            Column(name="calls", title="Calls", values=[row.calls for row in rows], shown=Shown.COUNT),
        ),
    )
