"""Waveforms and spectrograms."""

from torchstone.models.made_up.scene import Scene, number, parts

_FRAMES = 128
_SAMPLES = 16000
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
    if _takes_bins_first(scene):
        frames = 2 * (number(scene.audio, "max_source_positions") or _FRAMES)
        scene.draft.floats("input_features", (scene.batch, bins, frames), "a random spectrogram")
    else:
        scene.draft.floats("input_features", (scene.batch, _FRAMES, bins), "a random spectrogram")


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
    for config in (scene.audio, scene.config, *parts(scene.config)):
        found = number(config, "feature_projection_input_dim", *_MEL_BINS)
        if found is not None:
            return found
    return 80


def _takes_bins_first(scene: Scene) -> bool:
    """Whisper and what is built on its encoder have a fixed number of source positions and convolve over frames."""
    return any(
        number(config, "max_source_positions") and not number(config, *_FRAMES_FIRST)
        for config in (scene.audio, scene.config, *parts(scene.config))
    )


def _counts_channels(scene: Scene) -> bool:
    names = ("audio_channels", "codebook_size", "num_audio_channels", "hop_length")
    return any(name in vars(scene.config) for name in names)
