"""Waveforms, spectrograms, time series, segmentation prompts and recurrent states."""

import torch

from torchstone.models.example_inputs.context import Scene, number, parts
from torchstone.models.example_inputs.text import text_length, vocabulary
from torchstone.models.example_inputs.vision import add_patches, add_pixel_values

# Waveforms and spectrograms.


_FRAMES = 200
_SAMPLES = 16000
_BINS_FIRST = {"glmasr_encoder", "voxtral_realtime_encoder", "voxtral_realtime", "clvp", "qwen3_asr_encoder"}
_FEATURES_OF_A_WAVEFORM = {"xcodec2", "neucodec"}  # they read both, at 50 frames a second
_FIXED_BINS = {"gemma4_audio": 128}  # their configuration does not say
_SPECTROGRAM_AS_IMAGE = {"clap", "clap_audio_model"}
_ONE_CHANNEL = {"xcodec2", "neucodec", "pe_audio", "pe_audio_encoder", "vibevoice_acoustic_tokenizer"}
_MEL_BINS = (
    "num_mel_bins",
    "feature_size",
    "input_feat_per_channel",
    "n_mels",
    "input_feat_size",
    "mel_bins",
    "feat_dim",
    "input_dim",
)
_FRAMES_FIRST = ("input_feat_per_channel", "feature_size", "feature_projection_input_dim")


def add_input_features(scene: Scene) -> None:
    """A spectrogram: bins by frames for models in Whisper's manner, frames by bins for the others."""
    bins = mel_bins(scene)
    if "feature_lens" in scene.parameters:  # samples one after the other, each as long as its entry says
        scene.draft.floats("input_features", (bins, scene.batch * _FRAMES), "random spectrograms in a row")
        scene.draft.put("feature_lens", torch.full((scene.batch,), _FRAMES), "frames of each sample")
    elif scene.config.model_type in _FEATURES_OF_A_WAVEFORM:
        scene.draft.floats("input_features", (scene.batch, 50, bins), "a random spectrogram")
    elif scene.config.model_type in _SPECTROGRAM_AS_IMAGE:
        scene.draft.floats("input_features", (scene.batch, 1, _FRAMES, bins), "a random spectrogram")
    elif _takes_bins_first(scene):
        frames = 2 * (number(scene.audio, "max_source_positions") or _FRAMES)
        scene.draft.floats("input_features", (scene.batch, bins, frames), "a random spectrogram")
    else:
        scene.draft.floats("input_features", (scene.batch, _FRAMES, bins), "a random spectrogram")


def add_features_mask(scene: Scene, name: str) -> None:
    """All frames of the spectrogram count."""
    batch, *sides = scene.draft.kwargs["input_features"].shape
    scene.draft.ones(name, (batch, max(sides)), what="all frames count")


def add_spectrogram(scene: Scene) -> None:
    """What a vocoder reads: frames by bins."""
    bins = number(scene.config, "model_in_dim") or mel_bins(scene)
    scene.draft.floats("spectrogram", (scene.batch, _FRAMES, bins), "a random spectrogram")


def add_audio_mel(scene: Scene) -> None:
    """A spectrogram and the frames to leave out of it: none."""
    scene.draft.floats("audio_mel", (scene.batch, _FRAMES, mel_bins(scene)), "a random spectrogram")
    scene.draft.zeros("audio_mel_mask", (scene.batch, _FRAMES), dtype=torch.bool, what="no frame is left out")


def add_input_values(scene: Scene) -> None:
    """A waveform of one second, or a spectrogram for models that call it so."""
    if number(scene.config, "max_length", "time_stride") and number(scene.config, "num_mel_bins"):
        frames = number(scene.config, "max_length") or _FRAMES
        scene.draft.floats("input_values", (scene.batch, frames, mel_bins(scene)), "a random spectrogram")
        return
    shape: tuple[int, ...] = (scene.batch, _SAMPLES)
    if _counts_channels(scene):
        shape = (scene.batch, number(scene.config, "audio_channels", "num_audio_channels") or 1, _SAMPLES)
    scene.draft.floats("input_values", shape, "a random waveform")


def mel_bins(scene: Scene) -> int:
    """Frequency bins of a spectrogram."""
    if scene.config.model_type in _FIXED_BINS:
        return _FIXED_BINS[scene.config.model_type]
    for config in (scene.audio, scene.config, *parts(scene.config)):
        found = number(config, "feature_projection_input_dim", *_MEL_BINS)
        if found is not None:
            return found
    return 80


def _takes_bins_first(scene: Scene) -> bool:
    """Whisper and what is built on its encoder have a fixed number of source positions and convolve over frames."""
    return scene.config.model_type in _BINS_FIRST or any(
        number(config, "max_source_positions") and not number(config, *_FRAMES_FIRST)
        for config in (scene.audio, scene.config, *parts(scene.config))
    )


def _counts_channels(scene: Scene) -> bool:
    names = ("audio_channels", "codebook_size", "num_audio_channels", "hop_length")
    return scene.config.model_type in _ONE_CHANNEL or any(name in vars(scene.config) for name in names)


# Inputs of the rarer kinds: time series, prompts for segmentation, states.


_HISTORY = 32


def add_past_values(scene: Scene) -> None:
    """The history of a time series, one column for each channel."""
    config = scene.config
    length = number(config, "context_length") or _HISTORY
    lags = getattr(config, "lags_sequence", None)
    if lags:  # these models look back by the largest lag on top of the context
        shape: tuple[int, ...] = (scene.batch, length + max(lags))
        size = number(config, "input_size") or 1
        shape = shape if size == 1 else (*shape, size)
    elif config.model_type.startswith("timesfm"):
        shape = (scene.batch, length)
    else:
        shape = (scene.batch, length, number(config, "num_input_channels") or 1)
    scene.draft.floats("past_values", shape, "a random series")


def add_past_time_features(scene: Scene) -> None:
    """What is known of each moment of the history."""
    past = scene.draft.kwargs["past_values"].shape[1]
    features = getattr(scene.config, "num_time_features", 0)
    scene.draft.floats("past_time_features", (scene.batch, past, features), "random features of each moment")


def add_past_observed_mask(scene: Scene) -> None:
    """Every value was observed."""
    scene.draft.ones("past_observed_mask", scene.draft.kwargs["past_values"].shape, what="every value was observed")


def add_perceiver_inputs(scene: Scene) -> None:
    """Token ids under the name that Perceiver gives them."""
    shape = (scene.batch, text_length(scene))
    scene.draft.tokens("inputs", shape, below=vocabulary(scene), avoid=scene.special_tokens())
    scene.draft.ones("attention_mask", shape)


def add_input_points(scene: Scene) -> None:
    """One point in each image."""
    scene.draft.put("input_points", torch.ones(scene.batch, 1, 1, 2), "one point in each image")


def add_flattened_patches(scene: Scene) -> None:
    """Patches with their row and column, as Pix2Struct reads them."""
    width = 2 + (number(scene.vision, "patch_embed_hidden_size") or 0)
    patches = scene.draft.floats("flattened_patches", (scene.batch, _HISTORY, width), "random patches")
    patches[..., :2] = 1.0  # row and column


def add_hidden_states(scene: Scene) -> None:
    """What an encoder without an embedding of its own reads; vision towers call their patches so."""
    if "grid_thw" in scene.required:
        add_patches(scene, "hidden_states")
        return
    if scene.config.model_type == "florence_vision":  # its encoder embeds them itself
        add_pixel_values(scene, "hidden_states")
        return
    width = number(scene.config, "input_dim", "hidden_size", "d_model") or 1
    scene.draft.floats("hidden_states", (scene.batch, _HISTORY, width), "random hidden states")


def add_states(scene: Scene) -> None:
    """A trajectory for Decision Transformer."""
    length = min(scene.seq_len(), 20)
    config = scene.config
    scene.draft.floats("states", (scene.batch, length, number(config, "state_dim") or 1), "random states")
    scene.draft.floats("actions", (scene.batch, length, number(config, "act_dim") or 1), "random actions")
    scene.draft.floats("rewards", (scene.batch, length, 1), "random rewards")
    scene.draft.floats("returns_to_go", (scene.batch, length, 1), "random returns")
    scene.draft.put("timesteps", torch.arange(length).expand(scene.batch, length).clone(), "0, 1, 2, ...")
    scene.draft.ones("attention_mask", (scene.batch, length))
