"""Inputs for another batch are those that a user would give: the same values in more rows, in the same layout."""

import torch

from torchstone.models.inputs import Inputs
from torchstone.models.resize_inputs import by_comparison, by_dimension


def resized(args: tuple[object, ...], batch: int, dim: int = 0, choice: int = 0) -> tuple[object, ...]:
    found = by_dimension(Inputs(args=args, origin="a test"), dim)
    assert found is not None
    return found[1][choice].resized(batch).args


def test_rows_are_repeated_and_what_has_no_batch_stays() -> None:
    ids, table, flag = torch.tensor([[1, 2], [3, 4]]), torch.ones(5, 2), True
    rows, same, also = resized((ids, table, flag), 5)
    assert isinstance(rows, torch.Tensor)
    assert rows.tolist() == [[1, 2], [3, 4], [1, 2], [3, 4], [1, 2]]
    assert same is table
    assert also is flag


def test_large_ones_have_no_data_and_the_layout_of_the_given_one() -> None:
    images = torch.ones(2, 3, 40, 50).to(memory_format=torch.channels_last)
    (made,) = resized((images,), 7000)
    assert isinstance(made, torch.Tensor)
    assert made.is_meta
    assert made.shape == (7000, 3, 40, 50)
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_one_row_that_is_seen_as_many_stays_one() -> None:
    (made,) = resized((torch.ones(1, 9).expand(4, 9),), 1000)
    assert isinstance(made, torch.Tensor)
    assert made.shape == (1000, 9)
    assert made.untyped_storage().nbytes() == 9 * 4


def test_a_mask_over_as_many_tokens_as_samples_may_be_none_of_the_batch() -> None:
    tokens, mask = torch.ones(4, 4, 8), torch.zeros(4, 4)
    both = [[tuple(one.shape) for one in resized((tokens, mask), 6, choice=choice)] for choice in (0, 1)]  # type: ignore[attr-defined]
    assert both == [[(6, 4, 8), (6, 4)], [(6, 4, 8), (4, 4)]]


def test_generated_inputs_tell_where_their_batch_is() -> None:
    def generated(batch: int) -> Inputs:
        patches, ids = torch.ones(16 * batch, 9), torch.ones(3, batch, dtype=torch.long)
        return Inputs(kwargs={"patches": patches, "ids": ids, "flag": True}, origin="a test")

    found = by_comparison(generated(2), 2, generated(4))
    assert found is not None
    made = found.resized(7).kwargs
    assert (made["patches"].shape, made["ids"].shape) == ((112, 9), (3, 7))
    assert by_comparison(generated(2), 2, generated(5)) is None  # not the double


def test_objects_cannot_be_compared() -> None:
    class Cache:
        pass

    inputs = Inputs(args=(torch.ones(1, 2), Cache()), origin="a test")
    assert by_comparison(inputs, 1, Inputs(args=(torch.ones(2, 2), Cache()), origin="a test")) is None
