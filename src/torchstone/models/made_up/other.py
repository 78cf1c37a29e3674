"""Inputs of the rarer kinds: time series, prompts for segmentation, states."""

import torch

from torchstone.models.made_up.scene import Scene, number
from torchstone.models.made_up.text import text_length, vocabulary
from torchstone.models.made_up.vision import add_patches, add_pixel_values

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
