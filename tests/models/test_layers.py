import pytest
from transformers import BartConfig, GemmaConfig, GptOssConfig, LlavaConfig, MobileNetV2Config, SwinConfig

from torchstone.errors import ModelError
from torchstone.models.tiny import keep_layers


def test_lists_about_layers_are_cut_with_the_layers() -> None:
    config = GptOssConfig(num_hidden_layers=6)
    note = keep_layers(config, 2)
    assert config.num_hidden_layers == 2
    assert config.layer_types == ["sliding_attention", "full_attention"]
    assert note == "layers: only the first 2 of each stack are built (num_hidden_layers 6 -> 2)"


def test_both_stacks_of_an_encoder_decoder_are_cut() -> None:
    config = BartConfig()
    keep_layers(config, 1)
    assert (config.encoder_layers, config.decoder_layers) == (1, 1)


def test_parts_are_cut_too_and_named() -> None:
    config = LlavaConfig()
    assert "text_config.num_hidden_layers 32 -> 3" in keep_layers(config, 3)
    assert config.vision_config.num_hidden_layers == 3


def test_a_stack_that_is_short_enough_stays() -> None:
    config = GptOssConfig(num_hidden_layers=2)
    note = keep_layers(config, 2)
    assert (config.num_hidden_layers, len(config.layer_types)) == (2, 2)
    assert note == "layers: only the first 2 of each stack are built (as many as there are)"


def test_more_layers_than_there_are_are_refused_with_their_number() -> None:
    with pytest.raises(ModelError, match="gemma has 2 layers in its longest stack, not 3; give --layers 2 or fewer"):
        keep_layers(GemmaConfig(num_hidden_layers=2), 3)


def test_the_longest_of_several_stacks_decides() -> None:
    config = BartConfig(encoder_layers=2, decoder_layers=5)
    keep_layers(config, 5)
    assert (config.encoder_layers, config.decoder_layers) == (2, 5)


def test_a_model_without_layer_counts_is_refused() -> None:
    with pytest.raises(ModelError, match="mobilenet_v2 has no layer count that could be reduced"):
        keep_layers(MobileNetV2Config(), 2)


def test_no_layers_at_all_are_refused() -> None:
    with pytest.raises(ModelError, match="at least one layer, not 0"):
        keep_layers(GemmaConfig(), 0)


def test_a_model_in_stages_keeps_its_stages() -> None:
    config = SwinConfig()
    assert "depths [2, 2, 6, 2] -> [1, 1, 1, 1]" in keep_layers(config, 1)
    assert (config.depths, config.num_heads) == ([1, 1, 1, 1], (3, 6, 12, 24))
