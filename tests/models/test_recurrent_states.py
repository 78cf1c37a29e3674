"""The decode phase of recurrent models: states do not grow, so a long cache costs no long prefill."""

import pytest
import torch

from torchstone.models import load
from torchstone.models.inputs import InputOptions, Inputs


def _states(inputs: Inputs) -> list[torch.Size]:
    found: list[torch.Size] = []

    def look(value: object) -> None:
        if isinstance(value, torch.Tensor):
            found.append(value.shape)
        elif isinstance(value, list | tuple):
            for part in value:
                look(part)
        elif isinstance(value, dict):
            look(list(value.values()))
        elif hasattr(value, "__dict__"):
            look(list(vars(value).values()))

    look(inputs.kwargs.get("cache_params", inputs.kwargs.get("state")))
    return found


@pytest.mark.parametrize("name", ["tiny:mamba", "tiny:rwkv"])
def test_states_are_those_of_a_full_prefill(name: str) -> None:
    filled = {}
    for cached in (32, 33, 100_000):
        _, inputs = load(name, options=InputOptions(batch_size=3, phase="decode", cache_len=cached))
        filled[cached] = _states(inputs)
        assert any(f"filled with {cached:,} tokens" in note for note in inputs.notes)
        assert any("same size after any number" in note for note in inputs.notes) == (cached > 32)
    assert filled[32]
    assert filled[32] == filled[33] == filled[100_000]


def test_a_cache_that_grows_is_filled_whole() -> None:
    _, inputs = load("tiny:llama", options=InputOptions(phase="decode", cache_len=77))
    assert inputs.kwargs["past_key_values"].get_seq_length() == 77
