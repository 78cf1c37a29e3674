"""operators.json, operators.csv, functions.csv: module types, aten ops, torch functions; counts, arguments, where."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from torchstone.record.functions import FunctionUse
from torchstone.record.trace import Trace
from torchstone.report.spreadsheet import write_csv
from torchstone.report.view.modules import attributes_text
from torchstone.report.view.operators import NO_MODULE, operator_rows, use_rows, variant_rows

SCHEMA = "torchstone/operators/1"
_OUTSIDE = "(outside any module)"
_ROOT = "(root)"


def operators_json(trace: Trace, functions: Sequence[FunctionUse] = ()) -> bytes:
    """All operators, torch functions and module types."""
    used_in = _users(trace)
    variants: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in variant_rows(trace):
        variants[row.op].append({"arguments": row.arguments, "output": row.output, "calls": row.calls})
    document = {
        "schema": SCHEMA,
        "model": trace.provenance.model,
        "calls": len(trace.ops),
        "operators": [
            {
                "op": row.op,
                "function": torch_function(row.op),
                "calls": row.calls,
                "dtypes": row.dtypes,
                "variants": variants[row.op],
                "modules": used_in[row.op],
            }
            for row in operator_rows(trace)
        ],
        "functions": _functions(functions),
        "module_types": _module_types(trace),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def operators_csv(trace: Trace) -> bytes:
    """One line per operator with one set of shapes and arguments."""
    names = ("op", "function", "calls", "arguments", "output")
    rows = ((row.op, torch_function(row.op), row.calls, row.arguments, row.output) for row in variant_rows(trace))
    return write_csv(names, rows)


def functions_csv(functions: Sequence[FunctionUse]) -> bytes:
    """One line per torch function with one set of arguments."""
    names = ("function", "calls", "arguments", "output", "modules")
    rows = ((one.function, one.calls, one.arguments, one.output, " ".join(_named(one.modules))) for one in functions)
    return write_csv(names, rows)


def _functions(uses: Sequence[FunctionUse]) -> list[dict[str, Any]]:
    found: dict[str, list[FunctionUse]] = {}
    for use in uses:
        found.setdefault(use.function, []).append(use)
    rows = [
        {
            "function": name,
            "calls": sum(one.calls for one in variants),
            "variants": [{"arguments": one.arguments, "output": one.output, "calls": one.calls} for one in variants],
            "modules": _named(dict.fromkeys(path for one in variants for path in one.modules)),
        }
        for name, variants in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["calls"], row["function"]))


def _named(paths: Iterable[str]) -> list[str]:
    return [path or _ROOT for path in paths]


def torch_function(op: str) -> str:
    """The name under which people know an op: aten.mm.default is mm."""
    return op.split(".")[1] if op.count(".") > 1 else op


def _users(trace: Trace) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for use in use_rows(trace):
        found[use.op].append(_OUTSIDE if use.module == NO_MODULE else trace.modules[use.module].path or _ROOT)
    return found


def _module_types(trace: Trace) -> list[dict[str, Any]]:
    calls = Counter(trace.module_calls.modules)
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, module in enumerate(trace.modules):
        members[module.class_name].append(index)
    return [
        {
            "class": name,
            "modules": len(found),
            "calls": sum(calls[index] for index in found),
            "attributes": sorted({attributes_text(trace, index) for index in found}),
            "paths": [trace.modules[index].path or _ROOT for index in found],
        }
        for name, found in sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
