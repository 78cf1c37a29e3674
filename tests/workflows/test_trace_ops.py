from pathlib import Path

import pytest

from torchstone.errors import InputError
from torchstone.record.codec import load
from torchstone.record.config import OpLog, TargetKind
from torchstone.store.database import Store
from torchstone.workflows.model_source import ModelRequest
from torchstone.workflows.trace_ops import TraceRequest, trace_ops


def test_a_script_is_traced_in_one_call(tmp_path: Path) -> None:
    script = tmp_path / "net.py"
    script.write_text("import torch\ntorch.ones(2, 3) @ torch.ones(3, 4)\n", encoding="utf-8")
    database = str(tmp_path / "x.db")

    result = trace_ops(TraceRequest(model=ModelRequest(model=str(script)), database=database, folder=tmp_path / "raw"))

    assert not result.has_findings
    assert (result.summary.kind, result.summary.calls, result.summary.new) == (TargetKind.SCRIPT, 3, 3)
    assert result.raw_trace is not None
    assert load(result.raw_trace, OpLog) == result.log
    with Store.open(database) as store:
        assert store.op_names() == ("aten.mm.default", "aten.ones.default")


def test_a_model_takes_no_arguments(tmp_path: Path) -> None:
    request = TraceRequest(
        model=ModelRequest(model="tiny:bert"), arguments=("--epochs",), database=str(tmp_path / "x.db")
    )

    with pytest.raises(InputError, match=r"takes no arguments .*--as script"):
        trace_ops(request)
