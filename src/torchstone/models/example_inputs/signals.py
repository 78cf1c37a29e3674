"""Waveforms, spectrograms, time series, segmentation prompts and recurrent states."""

import torch

from torchstone.models.example_inputs.context import InputContext, nested_configs, positive_int
from torchstone.models.example_inputs.text import text_length, vocabulary
from torchstone.models.example_inputs.vision import add_patches, add_pixel_values

# --- Waveforms and spectrograms ---

_FRAMES = 200
_SAMPLES = 16000
_BINS_FIRST = {"glmasr_encoder", "voxtral_realtime_encoder", "voxtral_realtime", "clvp", "qwen3_asr_encoder"}
_FEATURES_OF_A_WAVEFORM = {"xcodec2", "neucodec"}  # they read both, at 50 frames a second
_FIXED_BINS = {"gemma4_audio": 128}  # not in the configuration
_STACKED_FRAMES = {"fun_asr_nano_encoder"}  # it reads several frames at once
_FRAMES_OF_A_TOKEN = {"voxtral_realtime": 8}  # each token of its text is spoken in these
_CHANNELS_FIRST = {
    "vibevoice_acoustic_tokenizer_encoder": "channels",
    "vibevoice_acoustic_tokenizer_decoder": "hidden_size",
}  # what a codec reads has as many channels as this field says
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


def add_input_features(context: InputContext) -> None:
    """A spectrogram: (bins, frames) for Whisper-like models, (frames, bins) for the others."""
    bins = mel_bins(context)
    if "feature_lens" in context.parameters:  # samples one after the other, each as long as its entry says
        context.builder.floats("input_features", (bins, context.batch * _FRAMES), "random spectrograms in a row")
        context.builder.add("feature_lens", torch.full((context.batch,), _FRAMES), "frames of each sample")
    elif context.config.model_type in _FEATURES_OF_A_WAVEFORM:
        context.builder.floats("input_features", (context.batch, 50, bins), "a random spectrogram")
    elif context.config.model_type in _SPECTROGRAM_AS_IMAGE:
        context.builder.floats("input_features", (context.batch, 1, _FRAMES, bins), "a random spectrogram")
    elif _takes_bins_first(context):
        frames = 2 * (positive_int(context.audio, "max_source_positions") or _FRAMES)
        of_a_token = _FRAMES_OF_A_TOKEN.get(context.config.model_type)
        frames = frames if of_a_token is None else of_a_token * text_length(context)
        context.builder.floats("input_features", (context.batch, bins, frames), "a random spectrogram")
    else:
        context.builder.floats("input_features", (context.batch, _FRAMES, bins), "a random spectrogram")


def add_features_mask(context: InputContext, name: str) -> None:
    """All frames of the spectrogram count."""
    batch, *_, first, last = context.builder.kwargs["input_features"].shape
    frames = first if last == mel_bins(context) else last
    context.builder.ones(name, (batch, frames), what="all frames count")


def add_spectrogram(context: InputContext) -> None:
    """What a vocoder reads: frames by bins."""
    bins = positive_int(context.config, "model_in_dim") or mel_bins(context)
    context.builder.floats("spectrogram", (context.batch, _FRAMES, bins), "a random spectrogram")


def add_audio_mel(context: InputContext) -> None:
    """A spectrogram and a mask that drops no frame."""
    context.builder.floats("audio_mel", (context.batch, _FRAMES, mel_bins(context)), "a random spectrogram")
    context.builder.zeros("audio_mel_mask", (context.batch, _FRAMES), dtype=torch.bool, what="no frame is masked")


def add_input_values(context: InputContext) -> None:
    """A waveform of one second, or a spectrogram for models that call it so."""
    if positive_int(context.config, "max_length", "time_stride") and positive_int(context.config, "num_mel_bins"):
        frames = positive_int(context.config, "max_length") or _FRAMES
        context.builder.floats("input_values", (context.batch, frames, mel_bins(context)), "a random spectrogram")
        return
    shape: tuple[int, ...] = (context.batch, _SAMPLES)
    if _counts_channels(context):
        shape = (context.batch, positive_int(context.config, "audio_channels", "num_audio_channels") or 1, _SAMPLES)
    context.builder.floats("input_values", shape, "a random waveform")


def mel_bins(context: InputContext) -> int:
    """Frequency bins of a spectrogram."""
    if context.config.model_type in _FIXED_BINS:
        return _FIXED_BINS[context.config.model_type]
    if context.config.model_type in _STACKED_FRAMES:
        return positive_int(context.config, "input_size") or 1
    for config in (context.audio, context.config, *nested_configs(context.config)):
        found = positive_int(config, "feature_projection_input_dim", *_MEL_BINS)
        if found is not None:
            return found
    return 80


def _takes_bins_first(context: InputContext) -> bool:
    """Whisper and what is built on its encoder have a fixed number of source positions and convolve over frames."""
    return context.config.model_type in _BINS_FIRST or any(
        positive_int(config, "max_source_positions") and not positive_int(config, *_FRAMES_FIRST)
        for config in (context.audio, context.config, *nested_configs(context.config))
    )


def _counts_channels(context: InputContext) -> bool:
    names = ("audio_channels", "codebook_size", "num_audio_channels", "hop_length")
    return context.config.model_type in _ONE_CHANNEL or any(name in vars(context.config) for name in names)


# --- Time series, segmentation prompts, states ---

_HISTORY = 32
_CODED_FRAMES = 6400  # a codec reads a few thousand samples for each latent


def add_past_values(context: InputContext) -> None:
    """The history of a time series, one column for each channel."""
    config = context.config
    length = positive_int(config, "context_length") or _HISTORY
    lags = getattr(config, "lags_sequence", None)
    if lags:  # these models look back by the largest lag on top of the context
        shape: tuple[int, ...] = (context.batch, length + max(lags))
        size = positive_int(config, "input_size") or 1
        shape = shape if size == 1 else (*shape, size)
    elif config.model_type.startswith("timesfm"):
        shape = (context.batch, length)
    else:
        shape = (context.batch, length, positive_int(config, "num_input_channels") or 1)
    context.builder.floats("past_values", shape, "a random series")


def add_past_time_features(context: InputContext) -> None:
    """What is known of each moment of the history."""
    past = context.builder.kwargs["past_values"].shape[1]
    features = getattr(context.config, "num_time_features", 0)
    context.builder.floats("past_time_features", (context.batch, past, features), "random features of each moment")


def add_past_observed_mask(context: InputContext) -> None:
    """Every value was observed."""
    context.builder.ones(
        "past_observed_mask", context.builder.kwargs["past_values"].shape, what="every value was observed"
    )


def add_perceiver_inputs(context: InputContext) -> None:
    """Token ids under the name that Perceiver gives them."""
    shape = (context.batch, text_length(context))
    context.builder.tokens("inputs", shape, below=vocabulary(context), avoid=context.special_tokens())
    context.builder.ones("attention_mask", shape)


def add_input_points(context: InputContext) -> None:
    """One point in each image."""
    context.builder.add("input_points", torch.ones(context.batch, 1, 1, 2), "one point in each image")


def add_flattened_patches(context: InputContext) -> None:
    """Patches with their row and column, as Pix2Struct reads them."""
    width = 2 + (positive_int(context.vision, "patch_embed_hidden_size") or 0)
    patches = context.builder.floats("flattened_patches", (context.batch, _HISTORY, width), "random patches")
    patches[..., :2] = 1.0  # row and column


def add_hidden_states(context: InputContext) -> None:
    """What an encoder without an embedding of its own reads; vision towers call their patches so."""
    if "grid_thw" in context.required:
        add_patches(context, "hidden_states")
        return
    if context.config.model_type == "florence_vision":  # its encoder embeds them itself
        add_pixel_values(context, "hidden_states")
        return
    channels = _CHANNELS_FIRST.get(context.config.model_type)
    if channels is not None:
        shape = (context.batch, positive_int(context.config, channels) or 1, _CODED_FRAMES)
        context.builder.floats("hidden_states", shape, "random values, channels first")
        return
    if context.config.model_type == "phi4_multimodal_audio":
        context.builder.floats("hidden_states", (context.batch, _FRAMES, mel_bins(context)), "a random spectrogram")
        return
    width = positive_int(context.config, "input_dim", "hidden_size", "d_model") or 1
    context.builder.floats("hidden_states", (context.batch, _HISTORY, width), "random hidden states")


def add_states(context: InputContext) -> None:
    """A trajectory for Decision Transformer."""
    length = min(context.seq_len(), 20)
    config = context.config
    context.builder.floats("states", (context.batch, length, positive_int(config, "state_dim") or 1), "random states")
    context.builder.floats("actions", (context.batch, length, positive_int(config, "act_dim") or 1), "random actions")
    context.builder.floats("rewards", (context.batch, length, 1), "random rewards")
    context.builder.floats("returns_to_go", (context.batch, length, 1), "random returns")
    context.builder.add("timesteps", torch.arange(length).expand(context.batch, length).clone(), "0, 1, 2, ...")
    context.builder.ones("attention_mask", (context.batch, length))
