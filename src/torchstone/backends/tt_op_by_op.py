"""TT-XLA's own op-by-op test: its command line, and what its report says.

The report is that of the pytest plugin json-report. Each op is a property of its own under the repeated key
`OpTest model for: <op>`, and all its values are strings. "Success" there means that the op ran; nothing was compared.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEST = "tests/op_by_op/op_by_op_test.py::test_op_by_op"
PHASES = ("GENERATED_STABLE_HLO", "GENERATED_TTIR", "GENERATED_TTNN", "GENERATED_FLATBUFFER", "EXECUTED_FLATBUFFER")
_OP_KEY = "OpTest model for: "
_LAST_STEP = re.compile(r"Last step successfully finished: (?P<phase>\w+)")
_TENSOR = re.compile(r"TensorDesc\(shape=\[(?P<shape>[\d, ]*)\], data_type='(?P<dtype>[^']*)'")


class ReportError(Exception):
    """A report is missing or not one of the op-by-op test."""


@dataclass(frozen=True)
class TensorText:
    """A tensor as the report writes it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class OpRun:
    """One op of the report."""

    op: str  # "ttir.add"
    ran: bool  # it ran without an error; whether it was right is not known
    skipped: bool
    last_phase: str  # the last phase that was reached, of PHASES; "" where the report does not say
    error: str  # "" when it ran
    model: str
    inputs: tuple[TensorText, ...]
    outputs: tuple[TensorText, ...]
    parameters: str  # "" when there are none


@dataclass(frozen=True)
class OpByOpReport:
    """What one run of the test found."""

    ops: tuple[OpRun, ...]
    ops_before_filtering: int | None
    ops_after_filtering: int | None
    extraction_failures: tuple[str, ...]  # modules that could not be taken apart: their ops were never run
    unreported: int | None  # ops that were to run and are not in the report; None where the report does not say
    compile_only: bool
    test_outcome: str  # of pytest: passed, failed, error
    test_error: str  # the end of pytest's own message; "" when there is none


def command_line(
    python: str,
    folder: Path,
    report: Path,
    *,
    prefix: str = "irs/ttir_",
    failed_ops: Path | None = None,
    more: Sequence[str] = (),
) -> list[str]:
    """The command that runs the op-by-op test over the IR files of a folder; it belongs into a checkout of TT-XLA.

    The prefix ends in `_`: without it, `irs/shlo_compiler` also takes shlo_compiler_cleaned.
    """
    command = [python, "-m", "pytest", "-svv", TEST, f"--folder={folder}", f"--ir-file-prefix={prefix}"]
    command += ["--json-report", f"--json-report-file={report}"]
    if failed_ops is not None:
        command.append(f"--failed-ops-folder={failed_ops}")
    return [*command, *more]


def read_report(path: Path) -> OpByOpReport:
    """Read a report; whatever is not there is None or empty, never a number that was made up."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        tests = document["tests"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} is no report of the op-by-op test: {error}"
        raise ReportError(msg) from error
    properties = [pair for test in tests for pair in _properties(test)]
    ops = tuple(_op_run(key, value) for key, value in properties if key.startswith(_OP_KEY))
    others = {key: value for key, value in properties if not key.startswith(_OP_KEY)}
    wanted = _count(others.get("total_ops_after_filtering"))
    return OpByOpReport(
        ops=ops,
        ops_before_filtering=_count(others.get("total_ops_before_filtering")),
        ops_after_filtering=wanted,
        extraction_failures=_extraction_failures(others),
        unreported=None if wanted is None else max(0, wanted - len(ops)),
        compile_only=_is_true(others.get("compile_only")),
        test_outcome=_worst([str(test.get("outcome", "")) for test in tests]),
        test_error=next((text for test in tests if (text := _crash_text(test))), ""),
    )


def _properties(test: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for one in test.get("user_properties", ()):
        yield from one.items()


def _op_run(key: str, value: dict[str, Any]) -> OpRun:
    texts = {name: "" if text is None or str(text) == "None" else str(text) for name, text in value.items()}
    phase = _LAST_STEP.search(texts.get("error_message", ""))
    ran = _is_true(value.get("success"))
    return OpRun(
        op=texts.get("op_name") or key.removeprefix(_OP_KEY),
        ran=ran,
        skipped=_is_true(value.get("skipped")),
        last_phase=phase["phase"] if phase else PHASES[-1] if ran else "",
        error="" if ran else texts.get("error_message", "") or "it failed without a message",
        model=texts.get("model_name", ""),
        inputs=_tensors(texts.get("inputs", "")),
        outputs=_tensors(texts.get("outputs", "")),
        parameters=texts.get("op_params", ""),
    )


def _tensors(text: str) -> tuple[TensorText, ...]:
    return tuple(
        TensorText(tuple(int(size) for size in found["shape"].split(",") if size.strip()), found["dtype"])
        for found in _TENSOR.finditer(text)
    )


def _extraction_failures(others: dict[str, Any]) -> tuple[str, ...]:
    details = others.get("extraction_failure_details")
    if isinstance(details, str):
        try:
            details = ast.literal_eval(details)
        except (ValueError, SyntaxError):
            details = [details] if details.strip() else []
    listed = tuple(map(str, details or ()))
    count = _count(others.get("extraction_failures")) or 0
    return listed + ("not told",) * max(0, count - len(listed))


def _count(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _is_true(value: Any) -> bool:
    return str(value).strip().lower() == "true"


def _worst(outcomes: list[str]) -> str:
    return next((one for one in outcomes if one != "passed"), "passed" if outcomes else "no test ran")


def _crash_text(test: dict[str, Any]) -> str:
    for stage in ("setup", "call", "teardown"):
        crash = test.get(stage, {}).get("crash")
        if crash:
            return str(crash.get("message", ""))
    return ""
