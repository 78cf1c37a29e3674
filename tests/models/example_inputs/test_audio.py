from collections.abc import Callable

from torchstone.models.example_inputs import signals
from torchstone.models.example_inputs.context import InputContext

ContextOf = Callable[..., InputContext]


def test_whisper_gets_exactly_the_frames_it_has_positions_for(context_of: ContextOf) -> None:
    context = context_of("whisper")
    signals.add_input_features(context)
    expected = (1, context.config.num_mel_bins, 2 * context.config.max_source_positions)
    assert context.builder.kwargs["input_features"].shape == expected


def test_other_models_get_frames_by_bins(context_of: ContextOf) -> None:
    context = context_of("speech_to_text")
    signals.add_input_features(context)
    assert context.builder.kwargs["input_features"].shape[-1] == context.config.input_feat_per_channel


def test_the_mask_covers_the_frames(context_of: ContextOf) -> None:
    context = context_of("whisper")
    signals.add_input_features(context)
    signals.add_features_mask(context, "input_features_mask")
    assert context.builder.kwargs["input_features_mask"].shape == (1, 2 * context.config.max_source_positions)


def test_a_waveform_has_channels_only_for_codecs(context_of: ContextOf) -> None:
    shapes = []
    for model_type in ("wav2vec2", "encodec"):
        context = context_of(model_type)
        signals.add_input_values(context)
        shapes.append(tuple(context.builder.kwargs["input_values"].shape))
    assert shapes == [(1, 16000), (1, 1, 16000)]


def test_a_vocoder_gets_a_spectrogram_of_its_width(context_of: ContextOf) -> None:
    context = context_of("speecht5_hifigan")
    signals.add_spectrogram(context)
    assert context.builder.kwargs["spectrogram"].shape[-1] == context.config.model_in_dim
