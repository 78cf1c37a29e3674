"""The document that `torchstone inspect --json` prints."""

from typing import Any

import msgspec

from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace
from torchstone.report.view.modules import ModuleRow, module_rows
from torchstone.report.view.operators import OperatorRow, operator_rows
from torchstone.report.view.overview import totals

SCHEMA = "torchstone/inspect/1"


def inspection_document(trace: Trace) -> dict[str, Any]:
    """Totals, modules, operators and the failure of one trace, as plain JSON values."""
    return {
        "schema": SCHEMA,
        "model": trace.provenance.model,
        "totals": msgspec.to_builtins(totals(trace)),
        "modules": [module_document(row) for row in module_rows(trace)],
        "operators": [operator_document(row) for row in operator_rows(trace)],
        "failure": failure_document(trace),
        "notes": list(trace.notes),
    }


def module_document(row: ModuleRow) -> dict[str, Any]:
    """One module."""
    return {
        "path": row.path,
        "class": row.class_path,
        "parameters": row.parameters,
        "own_parameters": row.own_parameters,
        "parameter_bytes": row.parameter_bytes,
        "inputs": [_tensor_document(spec) for spec in row.inputs],
        "outputs": [_tensor_document(spec) for spec in row.outputs],
        "calls": row.calls,
        "repeat_of": row.repeat_of,
        "repeats": row.repeats,
    }


def operator_document(row: OperatorRow) -> dict[str, Any]:
    """One operator."""
    return {
        "op": row.op,
        "calls": row.calls,
        "variants": row.variants,
        "modules": row.modules,
        "backward_calls": row.backward_calls,
    }


def failure_document(trace: Trace) -> dict[str, Any] | None:
    """Where and how the forward pass ended early; None when it did not."""
    if trace.failure is None:
        return None
    failure = trace.failure
    return {
        "module": failure.module,
        "op": failure.op or None,
        "error": failure.error,
        "arguments": failure.arguments,
        "location": failure.location,
    }


def _tensor_document(spec: TensorSpec) -> dict[str, Any]:
    return {"shape": list(spec.shape), "dtype": spec.dtype}
