"""All of the public list: fake tensors give what a real run gives, and reuse gives what running everything gives."""

import pytest

from tests.capture.architectures import PUBLIC, STEP_BY_STEP
from torchstone.capture import capture
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import Loaded
from torchstone.record.tensor import TensorSpec
from torchstone.record.trace import Trace

pytestmark = [
    pytest.mark.architectures,
    pytest.mark.filterwarnings("ignore"),  # what libraries say about their own models is not ours to fix
]


@pytest.fixture(scope="module", params=PUBLIC)
def tiny(request: pytest.FixtureRequest) -> tuple[str, Loaded]:
    options = InputOptions(seq_len=16) if request.param in STEP_BY_STEP else InputOptions()
    return request.param, load(f"tiny:{request.param}", options=options, device="cpu")


@pytest.fixture(scope="module")
def on_cpu(tiny: tuple[str, Loaded]) -> Trace:
    _, loaded = tiny
    capture(loaded.model, loaded.inputs, "cpu")  # some models keep tables from their first run
    return capture(loaded.model, loaded.inputs, "cpu")


@pytest.fixture(scope="module")
def on_fake(tiny: tuple[str, Loaded], on_cpu: Trace) -> Trace:
    del on_cpu
    _, loaded = tiny
    return capture(loaded.model, loaded.inputs, "fake")


def test_the_model_runs(on_cpu: Trace) -> None:
    assert on_cpu.failure is None
    assert len(on_cpu.ops) > 0


def test_fake_tensors_give_the_ops_and_shapes_of_a_real_run(on_cpu: Trace, on_fake: Trace) -> None:
    assert on_fake.failure is None
    assert what_ran(on_cpu, layout=True) == what_ran(on_fake, layout=True)


def test_taking_over_equal_calls_changes_nothing(tiny: tuple[str, Loaded], on_fake: Trace) -> None:
    _, loaded = tiny
    everything_run = capture(loaded.model, loaded.inputs, "fake", reuse=False)

    assert on_fake.modules == everything_run.modules
    assert on_fake.tensors == everything_run.tensors
    assert on_fake.ops == everything_run.ops
    assert on_fake.module_calls == everything_run.module_calls


def test_auto_gives_the_ops_of_a_real_run(tiny: tuple[str, Loaded], on_cpu: Trace) -> None:
    _, loaded = tiny
    trace = capture(loaded.model, loaded.inputs)

    assert trace.failure is None
    assert what_ran(trace, layout=True) == what_ran(on_cpu, layout=True)


def what_ran(trace: Trace, *, layout: bool) -> list[tuple[str, str, list[object]]]:
    return [
        (call.op, trace.module_path_of(call), [seen(spec, layout=layout) for spec in call.signature.input_specs])
        for call in trace.ops
    ]


def seen(spec: TensorSpec, *, layout: bool) -> object:
    """A tensor as far as it matters: the stride of a dimension of one element does not."""
    strides = tuple(stride for size, stride in zip(spec.shape, spec.stride or (), strict=False) if size > 1)
    return (spec.shape, spec.dtype, strides if layout and 0 not in spec.shape else None)
