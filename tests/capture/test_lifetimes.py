"""Peak memory with the lifetimes that Python gives tensors, against closed forms and torch's own profiler."""

import copy
import gc
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from torchstone.capture import capture, lifetimes
from torchstone.capture import reuse as reuse_module
from torchstone.capture.lifetimes import CachingAllocator
from torchstone.cost import price
from torchstone.models import load
from torchstone.models.inputs import InputOptions
from torchstone.record.trace import EagerMemory, Trace

_BYTES = 4  # of a float32


class _KeepsItsInput(nn.Module):
    """`first` stays in a local variable until the function returns, although it is last used by `second`."""

    def forward(self, x: Tensor) -> Tensor:
        first = x + 1
        second = first * 2
        third = second.exp()
        return third.relu()


class _LetsGo(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        x = x * 2
        x = x.exp()
        return x.relu()


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        gate = torch.sigmoid(hidden)
        product = gate * hidden
        return x + self.down(product)


def _stack(layers: int, width: int = 32) -> nn.Module:
    return nn.Sequential(*(_Block(width) for _ in range(layers)))


def _observed(trace: Trace) -> EagerMemory:
    """What was held, without what an allocator would have reserved for it."""
    assert trace.failure is None
    assert trace.eager_memory is not None
    return replace(trace.eager_memory, reserved_bytes=None)


def _allocated(model: nn.Module, inputs: tuple[object, ...], *, backward: bool = False) -> int:
    """The most bytes that the CPU allocator gave out, by torch's profiler."""
    gc.collect()
    with torch.set_grad_enabled(backward), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        output = model(*inputs)
        if backward:
            torch.autograd.backward([output], [torch.ones_like(output)])
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
@pytest.mark.parametrize("elements", [1, 7, 1024])
def test_a_variable_keeps_its_tensor(mode: str, elements: int) -> None:
    size = elements * _BYTES
    kept = capture(_KeepsItsInput(), (torch.zeros(elements),), mode)
    gone = capture(_LetsGo(), (torch.zeros(elements),), mode)
    assert _observed(kept) == EagerMemory(before_bytes=size, peak_bytes=5 * size)
    assert _observed(gone) == EagerMemory(before_bytes=size, peak_bytes=3 * size)
    assert price(kept).peak.total_bytes == price(gone).peak.total_bytes == 3 * size
    assert price(kept).peak.eager_bytes == 5 * size


def test_a_view_keeps_the_memory_it_looks_at() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            corner = (x + 1)[:1]
            return (x * 2).sum() + corner.sum()

    size = 100 * _BYTES
    found = _observed(capture(Views(), (torch.zeros(100),), "fake"))
    assert found.peak_bytes == 3 * size + _BYTES  # x, x + 1, x * 2 and one sum


@pytest.mark.parametrize("layers", [1, 2, 9])
def test_equal_layers_that_do_not_run_count_as_if_they_ran(layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_module, "_VERY_MANY", 1)  # single layers are compared, too
    model, inputs = _stack(layers), (torch.zeros(5, 32),)
    reused, plain = (capture(model, inputs, "fake", reuse=reuse) for reuse in (True, False))
    assert _observed(reused) == _observed(plain)
    assert bool(reused.provenance.reused_ops) == (layers > 1)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["tiny:llama", "tiny:t5", "tiny:qwen3_next"])
def test_reuse_holds_no_tensor_that_the_model_let_go_of(name: str, phase: str) -> None:
    model, inputs = load(name, options=InputOptions(batch_size=3, seq_len=65, phase=phase))
    reused, plain = (capture(model, inputs, "fake", reuse=reuse) for reuse in (True, False))
    assert _observed(reused).before_bytes == _observed(plain).before_bytes
    assert _observed(reused).peak_bytes == pytest.approx(_observed(plain).peak_bytes, rel=0.01)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("width", [32, 57])
def test_the_allocator_gives_out_what_was_observed(width: int, *, backward: bool) -> None:
    torch.manual_seed(0)
    model, inputs = _stack(4, width), (torch.randn(40, width),)
    found = _observed(capture(copy.deepcopy(model), inputs, "fake", backward=backward))
    measured = _allocated(model, inputs, backward=backward)
    assert found.peak_bytes - found.before_bytes == pytest.approx(measured, rel=0.02)


class _Raises(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        large = x.repeat(10)
        msg = f"not with {large.shape}"
        raise ValueError(msg)


class _Catches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Raises()

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.inner(x)
        except ValueError:
            pass
        return x.repeat(10)


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_an_error_that_the_model_catches_keeps_no_tensors_alive(mode: str) -> None:
    size = 100 * _BYTES
    found = _observed(capture(_Catches(), (torch.zeros(100),), mode))
    assert found == EagerMemory(before_bytes=size, peak_bytes=11 * size)


@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_a_checkpoint_gives_back_what_it_computed_again(mode: str) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = _stack(5)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks.children():
                # Each recomputation ends with an error.
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            return x

    torch.manual_seed(0)
    model, inputs = Checkpointed(), (torch.randn(40, 32),)
    found = _observed(capture(copy.deepcopy(model), inputs, mode, backward=True))
    measured = _allocated(model, inputs, backward=True)
    assert found.peak_bytes - found.before_bytes == pytest.approx(measured, rel=0.01)


class _HoldsViews(nn.Module):
    """A table of its own, and views of it that were made before the run."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(50, 8)
        self.rows = list(self.table.unbind(0))

    def forward(self, x: Tensor) -> Tensor:
        for row in self.rows:
            x = x + row
        return x


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_views_that_code_brings_along_are_one_piece_of_memory(mode: str) -> None:
    trace = capture(_HoldsViews(), (torch.zeros(8),), mode)
    before, row = 50 * 8 * _BYTES + 8 * _BYTES, 8 * _BYTES
    assert _observed(trace) == EagerMemory(before_bytes=before, peak_bytes=before + 2 * row)
    assert price(trace).peak.total_bytes == before + 2 * row


class _ReadsData(nn.Module):
    """`tensor.data` is a view that torch makes without an op."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 64))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight.data
        return y.data @ self.weight.data


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_the_data_of_a_tensor_are_its_own_memory(mode: str, layers: int) -> None:
    model = nn.Sequential(*(_ReadsData() for _ in range(layers)))
    trace = capture(model, (torch.zeros(1, 64),), mode)
    before = layers * 64 * 64 * _BYTES + 64 * _BYTES
    rows = 64 * _BYTES * (2 if layers == 1 else 3)  # what a layer was given, y and the result
    assert _observed(trace) == EagerMemory(before_bytes=before, peak_bytes=before + rows)
    assert price(trace).peak.total_bytes == before + 2 * 64 * _BYTES


class _WritesOut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        small = torch.empty(0)
        torch.add(x, 1, out=small)
        grown = x * 2
        grown.resize_(300)
        return small + grown[: small.shape[0]]


@pytest.mark.parametrize("mode", ["fake", "cpu"])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_memory_that_an_op_resizes_has_its_new_size(mode: str) -> None:
    size = 100 * _BYTES
    trace = capture(_WritesOut(), (torch.zeros(100),), mode)
    assert _observed(trace) == EagerMemory(before_bytes=size, peak_bytes=6 * size)
    assert price(trace).peak.total_bytes == 6 * size


def test_assigned_data_are_the_memory_of_what_was_assigned() -> None:
    class Assigns(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x + 1
            y.data = y.repeat(10)
            y.data = y.data[:100].clone()
            return y * 2

    size = 100 * _BYTES
    trace = capture(Assigns(), (torch.zeros(100),), "fake")
    assert _observed(trace) == EagerMemory(before_bytes=size, peak_bytes=12 * size)
    assert price(trace).peak.total_bytes == 12 * size


class _Replaces(nn.Module):
    """A buffer that grows, as a cache of its own may: what stood in its place before is freed."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(90))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.cat([self.seen, x])
        return x + self.seen.sum()


class _KeepsWhatItReplaces(_Replaces):
    def forward(self, x: Tensor) -> Tensor:
        before = self.seen
        self.seen = torch.cat([before, x])
        x = x + self.seen.sum()
        self.seen = before
        return x


@pytest.mark.parametrize("layers", [1, 5])
@pytest.mark.parametrize("mode", ["fake", "meta"])
def test_a_buffer_that_the_model_replaces_is_freed(mode: str, layers: int) -> None:
    model, inputs = nn.Sequential(*(_Replaces() for _ in range(layers))), (torch.zeros(10),)
    trace = capture(model, inputs, mode)
    before = (layers * 90 + 10) * _BYTES
    grown = layers * 10 * _BYTES  # by then, the others have grown
    last = _observed(trace)
    assert last.before_bytes == before
    assert last.peak_bytes <= before + grown + 90 * _BYTES + 3 * 10 * _BYTES
    assert price(trace).peak.total_bytes <= last.peak_bytes
    assert [tensor is model[0].seen for tensor in model[0].buffers()] == [True]
    assert model[0].seen.shape == (90,)


@pytest.mark.parametrize("mode", ["fake", "meta", "cpu"])
def test_a_buffer_that_the_model_puts_back_is_held(mode: str) -> None:
    trace = capture(_KeepsWhatItReplaces(), (torch.zeros(10),), mode)
    before = 100 * _BYTES
    assert _observed(trace) == EagerMemory(before_bytes=before, peak_bytes=before + 100 * _BYTES + 11 * _BYTES)


def test_a_batch_norm_that_needs_no_gradient_of_its_input_makes_none() -> None:
    model, inputs = nn.BatchNorm1d(64), (torch.randn(37, 64),)
    fake, real = (capture(copy.deepcopy(model), inputs, mode, backward=True) for mode in ("fake", "cpu"))
    assert _observed(fake) == _observed(real)
    assert price(fake).totals == price(real).totals


def test_the_workspace_of_a_recurrent_kernel_has_a_size_only_in_a_real_run() -> None:
    model, inputs = nn.LSTM(64, 32, num_layers=2), (torch.zeros(37, 1, 64),)
    fake, real = (price(capture(model, inputs, mode, backward=True)) for mode in ("fake", "cpu"))
    assert (fake.peak.unsized, real.peak.unsized) == (2, 0)
    assert fake.peak.total_bytes < real.peak.total_bytes
    assert price(capture(model, inputs, "fake")).peak.unsized == 0


def test_memory_of_unknown_size_is_not_guessed() -> None:
    class Sparse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sparse.mm(x.to_sparse_csr(), x)

    assert capture(Sparse(), (torch.eye(4),), "cpu").eager_memory is None


def test_inputs_that_a_cache_lets_go_of_are_not_held() -> None:
    class Cache:
        def __init__(self, keys: Tensor) -> None:
            self.keys = keys

    class Step(nn.Module):
        def forward(self, x: Tensor, cache: Cache) -> Tensor:
            cache.keys = torch.cat([cache.keys, x])
            return (cache.keys * 2).sum()

    past, new = torch.zeros(1000), torch.zeros(1)
    found = _observed(capture(Step(), ((new, Cache(past)), {}), "fake"))
    assert found.before_bytes == 1001 * _BYTES
    assert found.peak_bytes == (1 + 1001 + 1001 + 1) * _BYTES  # x, the new keys, twice these, their sum


# --- The caching allocator ---

MIB = 1 << 20


def test_the_sizes_of_the_allocator_are_those_of_torch() -> None:
    header = (Path(torch.__file__).parent / "include/c10/core/AllocatorConfig.h").read_text(encoding="utf-8")

    found = {name: int(number) for name, number in re.findall(r"constexpr size_t (k\w+) = (\d+);", header)}

    assert found == {
        "kSmallBuffer": lifetimes._SMALL_SEGMENT,
        "kMinBlockSize": lifetimes._LEAST_BLOCK,
        "kSmallSize": lifetimes._SMALL,
        "kMinLargeAlloc": lifetimes._OWN_SEGMENT,
        "kRoundLarge": lifetimes._ROUND_SEGMENT,
    }
    assert f"large_segment_size_{{{lifetimes._LARGE_SEGMENT}}}" in header


@pytest.mark.parametrize(
    ("sizes", "reserved_mib"),
    [
        ([0], 0),
        ([1], 2),
        ([1] * 4096, 2),  # 512 bytes each
        ([1] * 4097, 4),
        ([MIB], 2),
        ([MIB, MIB, 1], 4),
        ([MIB + 1], 20),
        ([8 * MIB, 8 * MIB], 20),
        ([8 * MIB, 8 * MIB, 4 * MIB], 20),
        ([8 * MIB, 8 * MIB, 4 * MIB + 1], 40),
        ([10 * MIB - 1, 10 * MIB - 1], 20),
        ([10 * MIB], 10),
        ([11 * MIB], 12),
        ([11 * MIB, MIB], 14),  # what is left of a large segment is not for small ones, nor is 1 MiB cut off
        ([13 * MIB - 1, 2 * MIB], 34),
    ],
)
def test_segments_are_reserved_as_documented(sizes: list[int], reserved_mib: int) -> None:
    allocator = CachingAllocator()

    for size in sizes:
        allocator.allocate(size)

    assert allocator.reserved_bytes == reserved_mib * MIB


def test_a_gap_that_is_too_small_costs_a_segment_although_as_much_is_free() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]  # fill one segment of 20 MiB
    assert all(blocks)

    for block in (blocks[0], blocks[2]):
        if block is not None:
            allocator.free(block)
    allocator.allocate(6 * MIB)

    assert allocator.reserved_bytes == 40 * MIB


def test_free_neighbours_are_joined() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]

    for place in (0, 2, 1):
        block = blocks[place]
        if block is not None:
            allocator.free(block)
    allocator.allocate(15 * MIB)

    assert allocator.reserved_bytes == 20 * MIB


@given(st.lists(st.integers(0, 24 * MIB), max_size=40), st.randoms(use_true_random=False))
def test_blocks_never_overlap_and_what_is_free_is_used_again(sizes: list[int], dice: random.Random) -> None:
    allocator, live = CachingAllocator(), []
    for size in sizes:
        block = allocator.allocate(size)
        if block is not None:
            assert block.size >= size
            live.append(block)
        if live and dice.random() < 0.5:
            allocator.free(live.pop(dice.randrange(len(live))))
        spans = sorted((one.address, one.address + one.size) for one in live)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert sum(one.size for one in live) <= allocator.reserved_bytes

    for block in live:
        allocator.free(block)
    before = allocator.reserved_bytes
    for size in sorted(sizes, reverse=True)[:1]:
        allocator.allocate(size)

    assert allocator.reserved_bytes == before


@pytest.mark.parametrize(
    ("model", "size_mib", "reserved_mib"),
    [
        (_KeepsItsInput(), 11, 5 * 12),  # the input and four results, each in a segment of its own
        (_KeepsItsInput(), 6, 2 * 20),  # three in each segment
        (_KeepsItsInput(), 0.25, 2),
        (_LetsGo(), 11, 3 * 12),
        (_LetsGo(), 6, 20),
        (_LetsGo(), 7, 2 * 20),
    ],
)
@pytest.mark.parametrize("mode", ["fake", "cpu"])
def test_a_run_says_what_the_allocator_reserves(
    model: nn.Module, size_mib: float, reserved_mib: int, mode: str
) -> None:
    x = torch.zeros(int(size_mib * MIB) // _BYTES)

    held = capture(model, x, mode, reuse=False).eager_memory

    assert held is not None
    assert held.reserved_bytes == reserved_mib * MIB


def test_what_the_allocator_reserves_is_not_known_where_layers_were_reused() -> None:
    held = capture(_stack(6), torch.ones(5, 32)).eager_memory

    assert held is not None
    assert held.reserved_bytes is None


@pytest.mark.parametrize("step", [1, 7, 512])
def test_no_run_reserves_less_than_it_holds(step: int) -> None:
    held = capture(_stack(6, 128), torch.ones(step * 11, 128), reuse=False).eager_memory

    assert held is not None
    assert held.reserved_bytes is not None
    assert held.reserved_bytes % (2 * MIB) == 0
    assert held.reserved_bytes >= held.peak_bytes
