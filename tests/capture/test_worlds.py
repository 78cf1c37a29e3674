import pytest
import torch
from torch import Tensor, nn

from torchstone.capture import capture
from torchstone.capture.tensor_modes import FakeWorld, MetaWorld, MovedWorld
from torchstone.record.trace import Trace

STAND_INS = ("meta", "fake")
aten = torch.ops.aten


class Table(nn.Module):
    """A model with a weight, around a function of it and the inputs."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4))
        self.function = function

    def forward(self, *args: Tensor) -> object:
        assert callable(self.function)
        return self.function(self.weight, *args)


def shapes(trace: Trace, op: str) -> list[tuple[int, ...]]:
    assert trace.failure is None, trace.failure
    return [spec.shape for call in trace.ops if call.op == op for spec in call.signature.output_specs]


@pytest.mark.parametrize("mode", STAND_INS)
def test_a_mask_that_is_known_picks_a_known_number_of_rows(mode: str) -> None:
    mask = torch.tensor([True, False, True, False, False, False])

    trace = capture(Table(lambda weight, mask: weight[mask]), (mask,), mode)

    assert shapes(trace, "aten.index.Tensor") == [(2, 4)]


@pytest.mark.parametrize("mode", STAND_INS)
def test_lengths_computed_from_known_tensors_are_known(mode: str) -> None:
    def rows(weight: Tensor, lengths: Tensor) -> Tensor:
        return weight[: int((lengths * 2).max())]

    trace = capture(Table(rows), (torch.tensor([1, 2]),), mode)

    assert shapes(trace, "aten.slice.Tensor") == [(4, 4)]


@pytest.mark.parametrize("mode", STAND_INS)
def test_known_memory_that_takes_unknown_values_is_unknown_from_then_on(mode: str) -> None:
    def reads_back(weight: Tensor) -> bool:
        flags = torch.zeros(4, dtype=torch.bool)
        view = flags[:2]
        flags.copy_(weight[0] > 0)
        return bool(view.any())

    trace = capture(Table(reads_back), (), mode)

    if mode == "fake":
        assert trace.assumed, "a value that comes from a weight must not be assumed silently"
        return
    assert trace.failure is not None
    assert trace.failure.op in {"aten._local_scalar_dense.default", ""}


@pytest.mark.parametrize("mode", STAND_INS)
def test_a_large_tensor_takes_no_memory(mode: str) -> None:
    huge = 1 << 40

    trace = capture(Table(lambda weight: weight.sum() + torch.zeros(huge).sum()), (), mode)

    assert shapes(trace, "aten.zeros.default") == [(huge,)]


@pytest.mark.parametrize("mode", STAND_INS)
@pytest.mark.parametrize(
    ("dtype", "rows", "columns"),
    [(torch.float32, 16, 32), (torch.float16, 16, 32), (torch.bfloat16, 16, 32), (torch.float32, 52, 20)],
)
def test_grouped_matmul_looks_as_in_a_real_run(mode: str, dtype: torch.dtype, rows: int, columns: int) -> None:
    """Rows of 52 numbers are whole units of 16 bytes in float32 alone."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, rows, columns, dtype=dtype))

        def forward(self, x: Tensor, ends: Tensor) -> Tensor:
            return aten._grouped_mm(x, self.weight, ends)

    inputs = (torch.randn(8, rows, dtype=dtype), torch.tensor([3, 8], dtype=torch.int32))

    guessed, real = (capture(Experts(), inputs, way).ops[0].signature.output_specs[0] for way in (mode, "cpu"))

    assert (guessed.shape, guessed.dtype, guessed.stride) == (real.shape, real.dtype, real.stride)


@pytest.mark.parametrize("mode", STAND_INS)
def test_parameters_are_back_in_place_even_when_the_model_raises(mode: str) -> None:
    def raises(_: Tensor) -> Tensor:
        raise RuntimeError

    model = Table(raises)
    weight = model.weight

    trace = capture(model, (), mode)

    assert trace.failure is not None
    assert model.weight is weight
    assert vars(weight) == {}


def test_meta_says_what_a_real_run_would_do_otherwise() -> None:
    world = MetaWorld()

    world.execute(aten._safe_softmax.default, (torch.zeros(2, 2, device="meta"), -1), {})
    world.met_unnumbered(torch.zeros(1, device="meta"))
    world.execute(aten._to_copy.default, (torch.ones(2, dtype=torch.int64),), {"device": torch.device("meta")})
    world.execute(aten._to_copy.default, (torch.ones(2, dtype=torch.int64),), {"dtype": torch.int32})

    assert [difference.split()[0] for difference in world.differences] == ["fused", "constants", "small"]


def test_a_stand_in_looks_like_what_it_stands_for() -> None:
    tensor = torch.randn(4, 6)[::2].t()

    for world in (FakeWorld(), MetaWorld()):
        stand_in = world.make(tensor)
        assert (stand_in.shape, stand_in.stride(), stand_in.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
        assert world.substitute(tensor) is world.substitute(tensor)


def test_a_moved_tensor_is_a_copy_and_always_the_same() -> None:
    world, weight = MovedWorld(torch.device("cpu")), nn.Linear(2, 2).weight

    moved = world.hold(weight)

    assert moved is world.hold(weight) is not weight
    assert isinstance(moved, nn.Parameter)
    assert torch.equal(moved, weight)


def test_small_integer_buffers_keep_their_values() -> None:
    world, table = FakeWorld(), torch.tensor([1, 2])

    assert world.hold(table) is table
    assert world.is_stand_in(world.hold(table.float()))


@pytest.mark.parametrize("mode", STAND_INS)
@pytest.mark.parametrize("rows", [31, 33])  # 4,063,232 and 4,325,376 values: on both sides of the usual limit
def test_a_large_batch_takes_the_branch_of_a_small_one(mode: str, rows: int) -> None:
    """Models ask whether a mask is all ones, of any number of sequences."""

    def attend(weight: Tensor, mask: Tensor) -> Tensor:
        return weight.exp() if mask.bool().all() else weight.sin()

    trace = capture(Table(attend), torch.ones(rows, 131_072, dtype=torch.int64), mode=mode)
    assert shapes(trace, "aten.exp.default") == [(6, 4)]


def test_large_images_have_no_values_beside_large_masks() -> None:
    world = FakeWorld()
    world.enter(torch.ones(5_000, 1_000, dtype=torch.int64))
    assert world.is_stand_in(world.enter(torch.ones(6_000, 1_000)))
