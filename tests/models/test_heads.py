import pytest
from transformers import LlamaConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.models.pretrained import model_class_for


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("bert", "BertForMaskedLM"),
        ("gpt2", "GPT2LMHeadModel"),
        ("t5", "T5ForConditionalGeneration"),
        ("bart", "BartForConditionalGeneration"),
        ("whisper", "WhisperForConditionalGeneration"),
        ("llava", "LlavaForConditionalGeneration"),
        ("clip", "CLIPModel"),
        ("vit", "ViTForImageClassification"),
        ("detr", "DetrForObjectDetection"),
        ("wav2vec2", "Wav2Vec2ForCTC"),
        ("musicgen", "MusicgenForConditionalGeneration"),
        ("blip_text_model", "BlipTextModel"),  # a part that no auto class lists
    ],
)
def test_the_usual_task_of_a_type_is_chosen(model_type: str, name: str) -> None:
    assert model_class_for(CONFIG_MAPPING[model_type]()).__name__ == name


def test_the_class_a_configuration_names_wins() -> None:
    config = LlamaConfig(architectures=["LlamaForSequenceClassification"])
    assert model_class_for(config).__name__ == "LlamaForSequenceClassification"


def test_a_class_that_transformers_does_not_have_is_passed_over() -> None:
    config = LlamaConfig(architectures=["SomebodysLlama"])
    assert model_class_for(config).__name__ == "LlamaForCausalLM"
