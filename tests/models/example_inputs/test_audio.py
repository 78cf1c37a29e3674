from collections.abc import Callable

from torchstone.models.example_inputs import signals
from torchstone.models.example_inputs.context import Scene

SceneOf = Callable[..., Scene]


def test_whisper_gets_exactly_the_frames_it_has_positions_for(scene_of: SceneOf) -> None:
    scene = scene_of("whisper")
    signals.add_input_features(scene)
    expected = (1, scene.config.num_mel_bins, 2 * scene.config.max_source_positions)
    assert scene.draft.kwargs["input_features"].shape == expected


def test_other_models_get_frames_by_bins(scene_of: SceneOf) -> None:
    scene = scene_of("speech_to_text")
    signals.add_input_features(scene)
    assert scene.draft.kwargs["input_features"].shape[-1] == scene.config.input_feat_per_channel


def test_the_mask_covers_the_frames(scene_of: SceneOf) -> None:
    scene = scene_of("whisper")
    signals.add_input_features(scene)
    signals.add_features_mask(scene, "input_features_mask")
    assert scene.draft.kwargs["input_features_mask"].shape == (1, 2 * scene.config.max_source_positions)


def test_a_waveform_has_channels_only_for_codecs(scene_of: SceneOf) -> None:
    shapes = []
    for model_type in ("wav2vec2", "encodec"):
        scene = scene_of(model_type)
        signals.add_input_values(scene)
        shapes.append(tuple(scene.draft.kwargs["input_values"].shape))
    assert shapes == [(1, 16000), (1, 1, 16000)]


def test_a_vocoder_gets_a_spectrogram_of_its_width(scene_of: SceneOf) -> None:
    scene = scene_of("speecht5_hifigan")
    signals.add_spectrogram(scene)
    assert scene.draft.kwargs["spectrogram"].shape[-1] == scene.config.model_in_dim
