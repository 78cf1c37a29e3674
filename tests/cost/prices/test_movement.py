import torch
from torch import Tensor

from tests.cost.calls import cost_of, flops_of

X = torch.ones(4, 8)


def test_a_copy_reads_and_writes_once_and_computes_nothing() -> None:
    for function in (torch.clone, lambda x: x.to(torch.float64), lambda x: torch.cat([x, x]), torch.tril):
        totals = cost_of(function, X).totals
        assert totals.flops == 0
        assert totals.bytes_read in (128, 256)
        assert totals.bytes_written in (128, 256)


def test_a_copy_into_a_tensor_does_not_read_what_was_there() -> None:
    def copy(x: Tensor) -> Tensor:
        target = torch.empty(4, 8)
        target.copy_(x)
        return target

    totals = cost_of(copy, X).totals
    assert (totals.bytes_read, totals.bytes_written) == (128, 128)


def test_repeating_writes_more_than_it_reads() -> None:
    totals = cost_of(lambda x: x.repeat(3, 1), X).totals
    assert (totals.bytes_read, totals.bytes_written) == (128, 384)


def test_padding_is_a_copy() -> None:
    totals = cost_of(lambda x: torch.nn.functional.pad(x, (1, 1)), X).totals
    assert (totals.flops, totals.bytes_read, totals.bytes_written) == (0, 128, 160)


def test_overlapping_patches_are_added() -> None:
    patches = torch.ones(1, 4, 9)
    assert flops_of(lambda x: torch.nn.functional.fold(x, (4, 4), 2), patches) == 36


def test_repeats_by_counts_need_a_running_sum() -> None:
    counts = torch.tensor([1, 2, 3])
    assert flops_of(torch.repeat_interleave, counts) == 3


def test_the_gradient_of_padding_adds_what_was_repeated() -> None:
    given = torch.ones(1, 2, 8, requires_grad=True)
    table = cost_of(lambda x: torch.nn.functional.pad(x, (2, 2), mode="reflect"), given, backward=True)
    assert table.totals.flops == 2 * 12


def test_resizing_keeps_what_is_there() -> None:
    from tests.cost.calls import priced, spec

    found = priced("aten.resize_.default", spec(4), self=spec(10))
    assert (found.reads, found.writes) == ((16,), (16,))


def test_triangle_indices_are_written_and_nothing_is_read() -> None:
    totals = cost_of(lambda x: torch.tril_indices(3, 3) + 0 * x.sum().long(), X).totals
    assert totals.bytes_written >= 2 * 6 * 8
