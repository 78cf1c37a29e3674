"""Results of checks, written by hand."""

from typing import Any

from torchstone.record.check import (
    Blame,
    CheckedCall,
    CheckedModule,
    CheckedOp,
    CheckResult,
    Finding,
    Numbers,
    Outcome,
    Proof,
    Totals,
    UnitResult,
)

WRONG = UnitResult(outcome=Outcome.WRONG, reason="PCC 0.1 is below 0.99", numbers=Numbers(pcc=0.1))


def module(path: str, status: str, *, outcome: str | None = None, **more: Any) -> CheckedModule:
    given: dict[str, Any] = {
        "id": f"mod_{path or 'root'}",
        "class_name": "net.Layer",
        "module_path": path,
        "parent": None,
        "input_shapes": ((2, 8),),
        "input_dtypes": ("float32",),
        "output_shapes": ((2, 8),),
        "output_dtypes": ("float32",),
        "parameters": 0,
        "parameter_shapes": {},
        "calls": 1,
        "occurrences": (path,),
        "container": False,
        "checked_calls": (CheckedCall(id=f"mod_{path}", call=0, calls=1, inputs=("float32[2, 8]",)),),
    }
    return CheckedModule(**{**given, **more}, status=status, outcome=outcome)


def finding(op: str = "aten.mm.default", **more: Any) -> Finding:
    given: dict[str, Any] = {
        "id": "finding_001",
        "blame": Blame.OP,
        "ops": (op,),
        "arguments": "self=float32[2, 8]",
        "modules": ("mod_layers.0",),
        "module_path": "layers.0",
        "outcome": Outcome.WRONG,
        "reason": "PCC 0.1 is below 0.99",
        "proven": True,
        "calls": 10,
        "op_calls": 10,
        "flops": 400,
        "repro": "repros/001_aten_mm_default.py",
        "confirmed": True,
    }
    return Finding(**{**given, **more})


def check_result(*findings: Finding, **more: Any) -> CheckResult:
    failed = [
        module("", "failed", outcome="wrong", reason="PCC 0.5 is below 0.99", numbers=Numbers(pcc=0.5)),
        module("layers", "skipped", container=True, children_status="failed"),
        module(
            "layers.0", "failed", outcome="crashed", reason="ended by SIGSEGV", evidence=Proof(signal="SIGSEGV"),
            findings=("finding_001",), irs=("irs/mod_layers.0/aten.txt",),
        ),
    ]  # fmt: skip
    passed = [module("", "success", outcome="passed"), module("layers", "inherited_success", container=True)]
    calls = sum(one.calls for one in findings)
    flops = sum(one.flops or 0 for one in findings)
    given: dict[str, Any] = {
        "model": "toy",
        "backend": "faulty",
        "backend_version": "torch 2",
        "modules": tuple(failed if findings else passed),
        "ops": tuple(
            CheckedOp(
                id="op_000", op=one.ops[0], arguments="x", output="y", module="mod_layers.0", calls=1, result=WRONG
            )
            for one in findings
            if one.ops
        ),
        "findings": findings,
        "totals": Totals(
            op_calls=100, working_calls=100 - calls, unknown_calls=0, flops=1000, working_flops=1000 - flops
        ),
        "tasks": 7,
    }
    return CheckResult(**{**given, **more})
