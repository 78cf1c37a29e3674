from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.capture.nets import Feed, Stack
from tests.check.held import Kept, faulty, kept_model
from torchstone.check.child import model as child_model
from torchstone.check.child.programs import (
    as_written_by_hand,
    inputs_of_steps,
    positional_names,
    run_step,
    starting_values,
)


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        z = y + 1
        y.add_(10)
        return z + y


def payload_of(kept: Kept, chosen: list[int], **how: Any) -> dict[str, Any]:
    payload: dict[str, Any] = kept.requests(faulty(), **how).for_steps("x", 0, chosen).task.payload
    return payload


def step(op: str, **kwargs: Any) -> dict[str, Any]:
    return {"op": op, "args": [], "kwargs": kwargs, "outputs": ["t0"]}


def test_weights_come_from_the_model_that_is_held(tmp_path: Path) -> None:
    model = Feed()
    kept = kept_model(model, torch.ones(2, 8), tmp_path)

    values = starting_values(payload_of(kept, [0]))

    assert any(value is model.up.bias for value in values.values())


def test_weights_come_from_their_file_where_no_model_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Feed()
    kept = kept_model(model, torch.ones(2, 8), tmp_path, weights=True)
    payload = payload_of(kept, [0])
    monkeypatch.setattr(child_model, "_models", [])

    values = starting_values(payload)

    assert any(torch.equal(value, model.up.bias) for value in values.values() if value.shape == model.up.bias.shape)


def test_an_op_gets_what_it_got_in_the_run(tmp_path: Path) -> None:
    model = Stack(Feed())
    x = torch.randn(2, 8)
    kept = kept_model(model, x, tmp_path)
    steps = kept.requests(faulty()).program(0).steps
    activation = next(place for place, step in enumerate(steps) if "leaky_relu" in step.op)
    payload = payload_of(kept, [activation])

    (given,) = inputs_of_steps(payload, starting_values(payload)).values()

    with torch.no_grad():
        assert torch.equal(given, model.layers[0].up(x))  # type: ignore[operator]


def test_what_is_overwritten_later_is_seen_as_it_was(tmp_path: Path) -> None:
    kept = kept_model(Overwrites(), torch.ones(3), tmp_path)
    plus_one = next(
        place for place, step in enumerate(kept.requests(faulty()).program(0).steps) if step.op == "aten.add.Tensor"
    )
    payload = payload_of(kept, [plus_one, len(kept.requests(faulty()).program(0).steps) - 1])

    given = inputs_of_steps(payload, starting_values(payload))

    assert {float(value[0]) for value in given.values()} == {2.0}


def test_arguments_by_position_stop_at_keyword_only_ones() -> None:
    add = step("aten.add.Tensor", self={"tensor": "a"}, other={"tensor": "b"}, alpha=2)

    assert positional_names(add) == ["self", "other"]


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        (step("aten.add.Tensor", self=1, other=2, alpha=1), [1, 2], {}),
        (step("aten.add.Tensor", self=1, other=2, alpha=3), [1, 2], {"alpha": 3}),
        (step("aten.sum.dim_IntList", self=1, dim={"list": [0]}, keepdim=False, dtype=None), [1, {"list": [0]}], {}),
        (
            step("aten.sum.dim_IntList", self=1, dim={"list": [0]}, keepdim=True, dtype=None),
            [1, {"list": [0]}, True],
            {},
        ),
    ],
)
def test_what_an_op_assumes_anyway_is_left_out(given: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    (found,) = as_written_by_hand({"steps": [given]})["steps"]

    assert (found["args"], found["kwargs"]) == (args, kwargs)


def test_a_step_names_each_of_its_results() -> None:
    names: dict[str, Any] = {"x": torch.tensor([[1.0, 3.0], [2.0, 0.0]])}

    run_step({**step("aten.max.dim", self={"tensor": "x"}, dim=1, keepdim=False), "outputs": ["value", None]}, names)

    assert names["value"].tolist() == [3.0, 2.0]
    assert None not in names
