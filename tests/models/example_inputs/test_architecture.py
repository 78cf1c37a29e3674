import pytest
import torch

from torchstone.errors import ModelInputsError
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("bert", {"input_ids", "attention_mask"}),
        ("t5", {"input_ids", "attention_mask", "decoder_input_ids"}),
        ("vit", {"pixel_values"}),
        ("detr", {"pixel_values", "pixel_mask"}),
        ("clip", {"input_ids", "attention_mask", "pixel_values"}),
        ("whisper", {"input_features", "decoder_input_ids"}),
        ("wav2vec2", {"input_values"}),
        ("sam", {"pixel_values", "input_points"}),
        ("patchtst", {"past_values"}),
        ("layoutlm", {"input_ids", "attention_mask", "bbox"}),
    ],
)
def test_a_model_gets_the_inputs_of_its_kind(name: str, names: set[str]) -> None:
    assert set(load(f"tiny:{name}").inputs.kwargs) == names


def test_every_input_is_noted_and_on_cpu_though_the_model_is_on_meta() -> None:
    inputs = load("tiny:clip").inputs
    assert all(value.device.type == "cpu" for value in inputs.kwargs.values())
    assert all(any(note.startswith(f"{name}: ") for note in inputs.notes) for name in inputs.kwargs)
    assert inputs.origin == "generated from the model's configuration and signature"


def test_models_with_a_cache_are_in_the_prefill_phase() -> None:
    assert [load(f"tiny:{name}").inputs.phase for name in ("llama", "mamba", "vit")] == ["prefill", "prefill", ""]


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again, other = (load("tiny:clip", options=InputOptions(seed=seed)).inputs.kwargs for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["input_ids"], other["input_ids"])


def test_a_required_input_of_an_unknown_kind_is_named() -> None:
    with pytest.raises(ModelInputsError, match=r"Sam2VideoModel cannot be generated: .* inference_session; pass them"):
        load("tiny:sam2_video")
