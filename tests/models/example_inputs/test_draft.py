import torch

from torchstone.models.example_inputs.context import Draft


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    first, again, other = (Draft(seed).floats("x", (4, 4)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_ids_are_below_the_vocabulary_and_never_special() -> None:
    ids = Draft(0).tokens("input_ids", (4, 100), below=5, avoid={0, 1, 4})
    assert set(ids.unique().tolist()) == {2, 3}


def test_every_input_has_a_note_with_its_type_and_shape() -> None:
    draft = Draft(0)
    draft.tokens("input_ids", (1, 8), below=32000)
    draft.ones("attention_mask", (1, 8))
    draft.say("cache", object(), "filled")
    assert draft.notes == [
        "input_ids: int64[1, 8], random token ids below 32000",
        "attention_mask: int64[1, 8], all ones",
        "cache: filled",
    ]


def test_a_forgotten_input_leaves_no_note() -> None:
    draft = Draft(0)
    draft.floats("x", (1,))
    draft.zeros("y", (1,))
    draft.forget("x")
    assert list(draft.kwargs) == ["y"]
    assert draft.notes == ["y: int64[1], all zeros"]
