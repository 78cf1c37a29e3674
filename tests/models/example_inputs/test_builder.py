import torch

from torchstone.models.example_inputs.context import InputBuilder


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    first, again, other = (InputBuilder(seed).floats("x", (4, 4)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_ids_are_below_the_vocabulary_and_never_special() -> None:
    ids = InputBuilder(0).tokens("input_ids", (4, 100), below=5, avoid={0, 1, 4})
    assert set(ids.unique().tolist()) == {2, 3}


def test_every_input_has_a_note_with_its_type_and_shape() -> None:
    builder = InputBuilder(0)
    builder.tokens("input_ids", (1, 8), below=32000)
    builder.ones("attention_mask", (1, 8))
    builder.add_value("cache", object(), "filled")
    assert builder.notes == [
        "input_ids: int64[1, 8], random token ids below 32000",
        "attention_mask: int64[1, 8], all ones",
        "cache: filled",
    ]


def test_a_removed_input_leaves_no_note() -> None:
    builder = InputBuilder(0)
    builder.floats("x", (1,))
    builder.zeros("y", (1,))
    builder.remove("x")
    assert list(builder.kwargs) == ["y"]
    assert builder.notes == ["y: int64[1], all zeros"]
