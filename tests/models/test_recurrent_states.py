"""The decode phase of recurrent models: states do not grow, so a long cache costs no long prefill."""

from collections.abc import Iterable

import pytest
import torch

from torchstone.capture import capture
from torchstone.models import load
from torchstone.models.inputs import InputOptions, Inputs


def _states(inputs: Inputs) -> list[torch.Size]:
    return [one.shape for one in _tensors(inputs.kwargs.get("cache_params", inputs.kwargs.get("state")))]


def _dtypes(inputs: Inputs) -> list[str]:
    return [str(one.dtype) for one in _tensors(inputs.kwargs.get("cache_params", inputs.kwargs.get("state")))]


def _tensors(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts: Iterable[object] = ()
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    return [tensor for part in parts for tensor in _tensors(part)]


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["tiny:mamba", "tiny:mamba2", "tiny:rwkv", "tiny:recurrent_gemma"])
def test_states_have_the_dtypes_that_the_model_keeps_them_in(name: str, dtype: str) -> None:
    """RWKV sums up in float32 whatever its weights are: three states of five, in a list that is no cache class."""
    kept = {}
    for device in ("meta", "cpu"):
        options = InputOptions(batch_size=2, phase="decode", cache_len=5, dtype=dtype)
        model, inputs = load(name, options=options, device=device)
        kept[device] = _dtypes(inputs)
        attributes = [(path, vars(one)) for path, one in model.named_modules()]
        kept[device] += [
            f"{path}.{field} {value.dtype}" for path, own in attributes for field, value in own.items()
            if isinstance(value, torch.Tensor)
        ]  # fmt: skip
    real, _ = load(name, device="cpu", options=InputOptions(dtype=dtype))
    with torch.no_grad():
        output = real(input_ids=torch.ones(2, 5, dtype=torch.int64), use_cache=True)
    filled = Inputs(kwargs={name: output[name] for name in ("cache_params", "state") if name in output}, origin="real")
    assert kept["meta"] == kept["cpu"]
    assert kept["cpu"][: len(_dtypes(filled))] == _dtypes(filled)
    assert filled.kwargs or any(one.endswith("recurrent_states torch.float32") for one in kept["meta"])


@pytest.mark.parametrize("name", ["tiny:mamba", "tiny:mamba2", "tiny:falcon_mamba", "tiny:rwkv"])
def test_a_step_from_states_costs_the_same_after_any_number_of_tokens(name: str) -> None:
    costs = set()
    for cached in (3, 64, 1000):
        model, inputs = load(name, options=InputOptions(batch_size=2, phase="decode", cache_len=cached))
        assert "attention_mask" not in inputs.kwargs
        costs.add(sum(one.elements for one in capture(model, inputs).tensors.specs))
    assert len(costs) == 1
