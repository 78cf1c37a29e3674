"""Parts of larger models that stand alone run on the features that are generated for them."""

import pytest
import torch

from torchstone.models.load_model import load
from torchstone.models.pretrained import quiet_and_offline

PARTS = (
    "dia_decoder", "idefics2_perceiver", "sam3_detr_encoder", "sam3_detr_decoder", "sam3_mask_decoder",
    "paddleocr_vl_vision", "minicpm_ocr_vision", "kyutai_speech_to_text", "unlimited_ocr_vision_encoder",
)  # fmt: skip


@pytest.mark.parametrize("model_type", PARTS)
def test_a_part_of_a_model_runs_on_generated_features(model_type: str) -> None:
    with quiet_and_offline(), torch.no_grad():
        model, inputs = load(f"tiny:{model_type}", device="cpu")
        model(*inputs.args, **inputs.kwargs)


def test_the_mask_of_a_spectrogram_has_a_value_for_each_frame() -> None:
    _, inputs = load("tiny:fun_asr_nano_encoder")
    features, mask = inputs.kwargs["input_features"], inputs.kwargs["input_features_mask"]

    assert mask.shape == features.shape[:2]
