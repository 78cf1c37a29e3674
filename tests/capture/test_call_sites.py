"""Lines of code, against what `inspect` says of the code, and against a run in which nothing is taken over."""

import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import reuse as reuse_module
from torchstone.capture.capture_model import capture
from torchstone.models.load_model import load
from torchstone.record.source_lines import SourceLines
from torchstone.record.trace import Trace


def doubled(x: Tensor) -> Tensor:
    return x + x  # in a helper


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

    def forward(self, x: Tensor, depth: int = 2) -> Tensor:
        x = self.first(x)  # first line
        x = self.second(x)  # second line
        for block in self.blocks:
            x = block(x).relu()  # in a loop
        x = doubled(x)  # calls the helper
        x = torch.stack([part.exp() for part in x]).sum(0, keepdim=True)  # in a comprehension
        return self.forward(x, depth - 1) if depth else x  # calls itself


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    return found


def lines_of(trace: Trace) -> SourceLines:
    assert trace.lines is not None
    return trace.lines


def ops_by_line(trace: Trace) -> Counter[tuple[str, int, str]]:
    lines = lines_of(trace)
    found: Counter[tuple[str, int, str]] = Counter()
    for site, op in zip(lines.sites_of_ops(trace.repeats), trace.ops, strict=True):
        found.update((lines.files[file], line, op.op) for file, line in lines.lines_of(site))
    return found


def test_an_op_belongs_to_the_line_that_called_it_and_to_all_that_led_there() -> None:
    found = ops_by_line(capture(Net(), torch.zeros(3, 8)))

    def count(mark: str, op: str) -> int:
        return found[__file__, line_of(mark), op]

    assert count("first line", "aten.addmm.default") == count("second line", "aten.addmm.default") == 3
    assert count("in a loop", "aten.addmm.default") == count("in a loop", "aten.relu.default") == 15
    assert count("in a helper", "aten.add.Tensor") == count("calls the helper", "aten.add.Tensor") == 3
    assert count("in a comprehension", "aten.exp.default") == 3 + 1 + 1
    assert count("calls itself", "aten.relu.default") == 10  # of two inner calls, once each


def test_the_text_of_a_function_is_its_code() -> None:
    lines = lines_of(capture(Net(), torch.zeros(3, 8)))
    texts = {one.name: (one.first_line, one.text) for one in lines.functions}

    for function in (doubled, Net.forward):
        text, first = inspect.getsourcelines(function)
        assert texts[function.__qualname__] == (first, "".join(text))


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:t5", "tiny:swin"])
def test_what_is_taken_over_from_an_equal_call_keeps_its_own_line(model: str) -> None:
    loaded = load(model)

    reused = capture(loaded.model, loaded.inputs)
    assert reused.provenance.reused_ops
    assert ops_by_line(reused) == ops_by_line(capture(loaded.model, loaded.inputs, reuse=False))


def test_equal_modules_on_two_lines_are_not_mixed_up_between_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_module, "_VERY_MANY", 1)  # single layers are compared, too

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
            self.right = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            for left, right in zip(self.left, self.right, strict=True):
                x = left(x)  # left one
                x = right(x) + x  # right one
            return x

    trace = capture(Twice(), torch.zeros(2, 4))
    found = ops_by_line(trace)

    assert trace.provenance.reused_ops
    assert found[__file__, line_of("left one"), "aten.addmm.default"] == 6
    assert found[__file__, line_of("right one"), "aten.addmm.default"] == 6
    lines = lines_of(trace)
    by_line = Counter(lines.line_of[site] for site in lines.sites_of_module_calls(trace.repeats) if site >= 0)
    assert by_line == {line_of("left one"): 6, line_of("right one"): 6}


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().sum()  # makes no node
        x = self.up(x)  # trained up
        x = Squared.apply(x)  # trained by hand
        return self.down(x) / scale  # trained down


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]


@pytest.mark.parametrize("mode", ["meta", "fake", "cpu"])
def test_ops_of_a_backward_pass_are_at_the_line_of_the_op_that_they_undo(mode: str) -> None:
    trace = capture(Trained(), torch.ones(3, 8), mode=mode, backward=True)
    lines, ops = lines_of(trace), trace.ops
    forward = trace.recorded_ops.forward_calls
    named = [trace.recorded_ops.signatures[one].op for one in ops.signature_of]
    undone: Counter[tuple[int, str]] = Counter()  # op calls of the backward pass because of a line
    for site, name in list(zip(lines.sites_of_ops(trace.repeats), named, strict=True))[forward:]:
        undone.update((line, name) for line in ({one for _, one in lines.lines_of(site)} or {-1}))

    assert undone[line_of("trained up"), "aten.mm.default"] == 1  # of the weight: the input needs no gradient
    assert undone[line_of("trained down"), "aten.mm.default"] == 2  # of the weight and of the input
    assert undone[line_of("trained by hand"), "aten.mul.Tensor"] == 2
    assert not {name for line, name in undone if line == line_of("makes no node")}
    at_no_line = {name for line, name in undone if line == -1}
    assert at_no_line <= {"aten.ones_like.default", "aten.detach.default"}  # at the outputs, and at the gradients


@pytest.mark.parametrize(
    "change", [{"ops": (0,)}, {"file_of": (9, 9)}, {"parent_of": (1, 1)}, {"module_calls": (7, 7, 7)}, {"line_of": ()}]
)
def test_numbers_out_of_range_are_refused(change: dict[str, tuple[int, ...]]) -> None:
    trace = capture(Net(), torch.zeros(3, 8))

    with pytest.raises(ValueError, match=r"."):
        msgspec.structs.replace(trace, lines=msgspec.structs.replace(lines_of(trace), **change)).check()


def test_a_library_whose_name_begins_like_that_of_torch_is_code_of_the_model() -> None:
    """torchvision is installed beside torch."""
    folder = Path(torch.__file__).parent
    code = compile("def double(x):\n    return x + x\n", f"{folder}vision/ops.py", "exec")
    made: dict[str, Callable[[Tensor], Tensor]] = {}
    exec(code, made)  # noqa: S102 - code of this test, with the file name of another library

    class Calls(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return made["double"](x)

    lines = lines_of(capture(Calls(), torch.zeros(2)))

    assert f"{folder}vision/ops.py" in lines.files
    assert not any(file.startswith(f"{folder}/") for file in lines.files)


class Shouting(nn.Parameter):
    """Weights whose ops run code of the model."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
            return result.exp() if function is nn.functional.linear else result  # in a subclass


def _with_forward(layer: nn.Linear) -> None:
    plain = layer.forward
    vars(layer)["forward"] = lambda x: plain(x).exp()  # in a replaced forward


def _with_hook(layer: nn.Linear) -> None:
    layer.register_forward_hook(lambda _module, _args, result: result.exp())  # in a hook


def _with_subclass(layer: nn.Linear) -> None:
    layer.weight = Shouting(layer.weight.detach())


@pytest.mark.parametrize(
    ("change", "mark"),
    [(_with_forward, "in a replaced forward"), (_with_hook, "in a hook"), (_with_subclass, "in a subclass")],
)
def test_code_of_the_model_that_runs_within_a_layer_of_torch_is_seen(
    change: Callable[[nn.Linear], None], mark: str
) -> None:
    layer = nn.Linear(4, 4)
    change(layer)
    net = nn.Sequential(nn.Linear(4, 4), layer)

    found = ops_by_line(capture(net, torch.zeros(2, 4), mode="cpu"))

    assert found[__file__, line_of(mark), "aten.exp.default"] == 1


def test_a_hook_for_all_modules_is_seen_within_a_layer_of_torch() -> None:
    handle = nn.modules.module.register_module_forward_hook(
        lambda _module, _args, result: result.exp()  # in a global hook
    )
    try:
        found = ops_by_line(capture(nn.Linear(4, 4), torch.zeros(2, 4)))
    finally:
        handle.remove()

    assert found[__file__, line_of("in a global hook"), "aten.exp.default"] == 1
