from pathlib import Path
from typing import Any

import pytest

from tests.sweep.builders import call, mm, tensor, vector
from torchstone.record.config import Configuration
from torchstone.record.value import Items
from torchstone.sweep.child import run as child
from torchstone.sweep.vectors import payload_of

BACKENDS = """
import torch
from torchstone.backends.eager import Eager
from torchstone.backends.protocol import CompileFailed, NotRun, Unsupported


class Bad(Eager):
    def __init__(self, how="wrong"):
        self.how = how

    def compile(self, module, args, kwargs):
        if self.how == "unsupported":
            raise Unsupported("no rule for aten.mm")
        if self.how == "compile":
            raise CompileFailed("the compiler broke")
        return self.run

    def run(self, *inputs):
        match self.how:
            case "raises":
                raise RuntimeError("the device is busy")
            case "compiles only":
                raise NotRun("there is no device to run it on")
            case "memory":
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
            case "dtype":
                return (inputs[0] @ inputs[1]).to(torch.float64)
            case "shape":
                return (inputs[0] @ inputs[1])[:1]
            case "stride":
                return (inputs[0] @ inputs[1]).t().contiguous().t()
            case "writes":
                result = inputs[0] @ inputs[1]
                inputs[0].zero_()
                return result
            case "nan":
                result = inputs[0] @ inputs[1]
                result[0, 0] = float("nan")
                return result
            case _:
                return (inputs[0] @ inputs[1]) * 2
"""


@pytest.fixture(autouse=True)
def _nothing_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_opened", child._Opened())


def run(configuration: Configuration, backend: str = "eager", **more: Any) -> dict[str, Any]:
    return child.run_vector({**payload_of(vector(configuration)), "backend": backend, **more})


@pytest.fixture
def bad(tmp_path: Path) -> str:
    (tmp_path / "bad.py").write_text(BACKENDS, encoding="utf-8")
    return f"{tmp_path / 'bad.py'}::Bad"


def test_eager_pytorch_agrees_with_itself_and_says_how_well() -> None:
    answer = run(mm())

    assert answer["outcome"] == "passed"
    assert answer["verdict"]["max_abs"] == 0.0
    assert answer["verdict"]["leaves"][0]["same_stride"] is True


@pytest.mark.parametrize(
    ("how", "outcome", "detail"),
    [
        ("wrong", "wrong", "times what float32 explains"),
        ("nan", "wrong", "NaN"),
        ("shape", "wrong", "shape"),
        ("dtype", "wrong", "float64 instead of float32"),
        ("writes", "wrong", "input 0 was changed"),
        ("unsupported", "unsupported", "no rule"),
        ("compile", "compile error", "the compiler broke"),
        ("raises", "raised", "the device is busy"),
        ("compiles only", "not run", "no device"),
        ("memory", "out of memory", "can't allocate"),
        ("stride", "passed", ""),
    ],
)
def test_each_way_to_fail_is_told_apart(bad: str, how: str, outcome: str, detail: str) -> None:
    answer = run(mm(4, 8, 6), bad, options={"how": how})

    assert answer["outcome"] == outcome
    assert detail in answer["detail"]


def test_strides_are_judged_where_asked_for(bad: str) -> None:
    answer = run(mm(4, 8, 6), bad, options={"how": "stride"}, strict_stride=True)

    assert (answer["outcome"], "stride" in answer["detail"]) == ("wrong", True)


def test_the_tolerance_travels_with_the_verdict(bad: str) -> None:
    answer = run(mm(4, 8, 6), bad, options={"how": "wrong"}, tolerance={"relative_l2": 2.0})

    assert answer["outcome"] == "passed"
    assert answer["verdict"]["leaves"][0]["tolerance"]["relative_l2"] == 2.0


@pytest.mark.parametrize(
    "configuration",
    [
        call("aten.add_.Tensor", self_=tensor(3), other=tensor(3), alpha=2),
        call("aten.add.out", self_=tensor(3), other=tensor(3), alpha=1, out=tensor(3)),
        call("aten.mul.Tensor", ((0, 1),), self_=tensor(3), other=tensor(3)),
        call("aten.split.Tensor", self_=tensor(6), split_size=2, dim=0),
        call("aten.native_layer_norm.default", input=tensor(2, 4), normalized_shape=Items(kind="list", items=(4,)),
             weight=tensor(4), bias=None, eps=1e-5),
        call("aten.cat.default", tensors=Items(kind="list", items=(tensor(2, 3), tensor(1, 3))), dim=0),
        call("aten.t.default", self_=tensor(2, 3)),
        call("aten._foreach_add_.Scalar", self_=Items(kind="list", items=(tensor(2), tensor(3))), scalar=1),
        call("aten.native_dropout.default", input=tensor(8), p=0.0, train=False),
    ],
    ids=lambda configuration: configuration.op,
)  # fmt: skip
def test_ops_of_every_kind_run(configuration: Configuration) -> None:
    answer = run(configuration)

    assert (answer["outcome"], answer["detail"]) == ("passed", "")
    assert answer["verdict"]["leaves"]


def test_what_an_in_place_op_writes_is_compared() -> None:
    answer = run(call("aten.add_.Tensor", self_=tensor(3), other=tensor(3), alpha=1))

    assert len(answer["verdict"]["leaves"]) == 2  # what it returns, and what it wrote to


@pytest.mark.parametrize(
    ("configuration", "why"),
    [
        (call("aten.uniform_.default", self_=tensor(9), from_=0.0, to=1.0), "random"),
        (call("aten._local_scalar_dense.default", self_=tensor(1)), "no tensor"),
        (call("aten.no_such.default"), "no op aten.no_such"),
        (call("aten.mm.default", self_=tensor(2, 3), mat2=tensor(4, 5)), "eager PyTorch refuses it"),
    ],
    ids=["random", "scalar", "unknown", "refused"],
)
def test_what_has_no_right_answer_is_not_run(configuration: Configuration, why: str) -> None:
    answer = run(configuration)

    assert answer["outcome"] == "not run"
    assert why in answer["detail"]


def test_warm_runs_are_timed_beside_eager_pytorch() -> None:
    answer = run(mm(), perf={"runs": 5})

    assert answer["timing"]["runs"] == 5
    assert answer["timing"]["median_s"] > 0
    assert answer["timing"]["eager_median_s"] > 0


def test_the_reference_can_be_asked_alone(bad: str) -> None:
    assert run(mm(), bad, options={"how": "wrong"}, only_reference=True)["outcome"] == "passed"


def attention(heads: int, key_heads: int, **more: Any) -> Configuration:
    query, key = tensor(1, heads, 6, 8), tensor(1, key_heads, 6, 8)
    given = {"query": query, "key": key, "value": key, "dropout_p": 0.0, "is_causal": False, **more}
    return call("aten._scaled_dot_product_flash_attention_for_cpu.default", **given)


@pytest.mark.parametrize(
    "configuration",
    [
        attention(4, 4),
        attention(4, 2, is_causal=True),
        attention(4, 1, scale=0.3),
        attention(6, 3, attn_mask=tensor(6, 6)),
    ],
)
def test_attention_whose_heads_share_keys_is_run_as_traced(configuration: Configuration) -> None:
    answer = run(configuration)

    assert (answer["outcome"], answer["detail"]) == ("passed", "")


def test_a_call_that_eager_refuses_says_so_and_one_that_only_the_rewrite_loses_says_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = run(attention(4, 4, dropout_p=0.5))
    monkeypatch.setattr("torchstone.sweep.child.program._shares_heads", lambda _step, _shapes: False)
    lost = run(attention(4, 2))

    assert refused["detail"].startswith("eager PyTorch refuses it: RuntimeError: scaled_dot_product_attention")
    assert lost["detail"].startswith("eager PyTorch runs it, but not the op that stands for it on other devices: ")
