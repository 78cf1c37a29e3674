from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from torchstone.capture.op_log import Recording
from torchstone.record.config import SeenConfiguration
from torchstone.record.op import Phase
from torchstone.record.tensor import TensorSpec


def recorded(program: Callable[[], object], *, looks: int = 8) -> tuple[SeenConfiguration, ...]:
    """What a program called."""
    recording = Recording(looks=looks)
    with recording.opened():
        program()
    return recording.records(source="a test", run="1")


def only(found: tuple[SeenConfiguration, ...], op: str) -> SeenConfiguration:
    (one,) = (seen for seen in found if seen.configuration.op == op)
    return one


def argument(seen: SeenConfiguration, name: str) -> object:
    return next(one.value for one in seen.configuration.arguments if one.name == name)


def test_arguments_stand_under_their_schema_names_with_defaults_filled_in() -> None:
    seen = only(recorded(lambda: torch.ones(2).add(torch.ones(2))), "aten.add.Tensor")

    assert [one.name for one in seen.configuration.arguments] == ["self", "other", "alpha"]
    assert argument(seen, "alpha") == 1


def test_a_default_that_is_passed_makes_no_other_configuration() -> None:
    x = torch.ones(2, 2)

    def program() -> None:
        torch.ops.aten.sum.dim_IntList(x, [0])
        torch.ops.aten.sum.dim_IntList(x, [0], keepdim=False)
        torch.ops.aten.sum.dim_IntList(x, [0], dtype=None, keepdim=False)

    seen = only(recorded(program), "aten.sum.dim_IntList")
    assert seen.calls == 3


def test_a_tensor_is_kept_with_its_stride_and_offset() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    seen = only(recorded(lambda: torch.neg(x.t()[1:])), "aten.neg.default")

    assert argument(seen, "self") == TensorSpec(shape=(3, 3), dtype="float32", stride=(1, 4), storage_offset=1)


def test_arguments_are_recorded_before_the_call_changes_them() -> None:
    x = torch.zeros(3)
    seen = only(recorded(lambda: x.fill_(7.0)), "aten.fill_.Scalar")

    assert (seen.facts[0].lowest, seen.facts[0].highest) == (0.0, 0.0)


def test_one_tensor_given_twice_is_told_from_two_equal_ones() -> None:
    x, y = torch.ones(2), torch.ones(2)
    found = recorded(lambda: (torch.mul(x, x), torch.mul(x, y)))

    assert sorted(seen.configuration.aliases for seen in found if seen.configuration.op == "aten.mul.Tensor") == [
        (),
        ((0, 1),),
    ]


def test_equal_calls_are_counted_and_other_scalars_are_other_configurations() -> None:
    x = torch.ones(2)
    found = recorded(lambda: [x.mul(2), x.mul(2), x.mul(3)])

    assert sorted(seen.calls for seen in found if seen.configuration.op == "aten.mul.Tensor") == [1, 2]


def test_the_values_of_later_calls_widen_what_is_known() -> None:
    seen = only(recorded(lambda: [torch.neg(torch.full((2,), float(i))) for i in range(3)]), "aten.neg.default")

    assert (seen.facts[0].lowest, seen.facts[0].highest) == (0.0, 2.0)
    assert (seen.facts[0].fewest_zeros, seen.facts[0].most_zeros) == (0.0, 1.0)


def test_no_more_calls_are_looked_at_than_asked_for() -> None:
    seen = only(
        recorded(lambda: [torch.neg(torch.full((2,), float(i))) for i in range(3)], looks=1), "aten.neg.default"
    )

    assert (seen.facts[0].highest, seen.calls) == (0.0, 3)


def test_looking_at_values_is_not_recorded() -> None:
    found = recorded(lambda: torch.neg(torch.tensor([1.0, float("nan")])))

    assert not {seen.configuration.op for seen in found} & {"aten.aminmax.default", "aten.isnan.default"}


def test_a_training_step_tells_forward_from_backward_and_names_the_module() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    found = recorded(lambda: net(torch.ones(2, 3)).sum().backward())
    backward = only(found, "aten.threshold_backward.default")

    assert [(one.phase, one.module_path, one.model) for one in backward.occurrences] == [
        (Phase.BACKWARD, "1", "Sequential")
    ]
    assert {one.phase for one in only(found, "aten.addmm.default").occurrences} == {Phase.FORWARD}


def test_a_backward_pass_on_another_thread_is_seen() -> None:
    x = torch.ones(2, 2, requires_grad=True)

    def program() -> None:
        loss = (x @ x).sum()
        thread = Thread(target=loss.backward)
        thread.start()
        thread.join()

    phases = {one.phase for seen in recorded(program) for one in seen.occurrences}
    assert phases == {Phase.FORWARD, Phase.BACKWARD}


def test_threads_run_as_before_when_the_recording_is_closed() -> None:
    before = Thread.run
    recorded(lambda: None)

    assert Thread.run is before


def test_a_composite_op_is_seen_as_its_parts_also_in_inference_mode() -> None:
    x = torch.ones(2, 2)

    def program() -> None:
        with torch.inference_mode():
            linear(x, x)

    assert "aten.linear.default" not in {seen.configuration.op for seen in recorded(program)}


def test_compiled_code_is_seen_op_by_op() -> None:
    compiled = torch.compile(lambda x: x.sin().cos(), backend="eager")

    ops = {seen.configuration.op for seen in recorded(lambda: compiled(torch.ones(2)))}
    assert {"aten.sin.default", "aten.cos.default"} <= ops


def test_what_a_program_raises_comes_through_and_what_was_seen_stays() -> None:
    recording = Recording()

    def program() -> None:
        torch.ones(2).neg()
        raise LookupError

    try:
        with recording.opened():
            program()
    except LookupError:
        pass

    assert "aten.neg.default" in {seen.configuration.op for seen in recording.records(source="s", run="r")}


def test_the_call_site_is_the_line_that_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # paths are relative to where the program runs

    def program() -> Tensor:
        return torch.ones(2).neg()

    (place,) = only(recorded(program), "aten.neg.default").occurrences
    assert place.call_site == f"tests/capture/test_recording.py:{program.__code__.co_firstlineno + 1}"
