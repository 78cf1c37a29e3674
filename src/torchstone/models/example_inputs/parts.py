"""What a part of a larger model reads when it stands alone: features that another part computes."""

import torch

from torchstone.models.example_inputs.context import InputContext, nested_config, positive_int
from torchstone.models.example_inputs.signals import mel_bins

_STEPS = 32
_WORDS = 16
_SIDE = 4  # rows and columns of the smallest feature map
_BOXES = 3
_LISTED_FEATURES = {"sam3_detr_encoder", "sam3_lite_text_detr_encoder"}  # they read feature maps, not one sequence


def add_latents(context: InputContext) -> None:
    """Continuous latents of an audio codec: channels first."""
    context.builder.floats("latents", (context.batch, _width(context), _STEPS), "random latents")


def add_context(context: InputContext) -> None:
    """The features that a resampler reads, all of which count."""
    context.builder.floats("context", (context.batch, _STEPS, _width(context)), "random features")
    context.builder.ones("attention_mask", (context.batch, _STEPS), what="all features count")


def add_no_mask(context: InputContext) -> None:
    """A required mask that may be None: nothing is masked."""
    context.builder.add_value("mask", None, "None, nothing is masked")


def add_mel_spectrogram(context: InputContext) -> None:
    """What a vocoder reads, bins first."""
    bins = positive_int(context.config, "mel_dim") or mel_bins(context)
    context.builder.floats("mel_spectrogram", (context.batch, bins, _STEPS), "a random spectrogram")


def add_patch_embeds(context: InputContext) -> None:
    """A feature map in place of patches."""
    context.builder.floats("patch_embeds", _map(context, _SIDE), "a random feature map")


def add_vision_features(context: InputContext) -> None:
    """The features of an image: feature maps for an encoder, one sequence with positions for a decoder."""
    if context.config.model_type in _LISTED_FEATURES:
        features = context.builder.floats("vision_features", _map(context, _SIDE), "a random feature map")
        context.builder.kwargs["vision_features"] = [features]
        context.builder.kwargs["vision_pos_embeds"] = [torch.zeros_like(features)]
        return
    shape = (context.batch, _SIDE * _SIDE, _width(context))
    context.builder.floats("vision_features", shape, "random features of an image")
    context.builder.floats("vision_pos_encoding", shape, "random encodings of positions")


def add_text_features(context: InputContext) -> None:
    """The features of a text."""
    shape = (context.batch, _WORDS, _width(context))
    context.builder.floats("text_features", shape, "random features of a text")


def add_decoder_queries(context: InputContext) -> None:
    """Queries, the features of an image, and its feature maps from fine to coarse."""
    stages = positive_int(context.config, "num_upsampling_stages") or 1
    width, batch = _width(context), context.batch
    context.builder.floats("decoder_queries", (batch, _WORDS, width), "random queries")
    context.builder.floats("encoder_hidden_states", (batch, _SIDE * _SIDE, width), "random features of an image")
    maps = [torch.zeros(_map(context, _SIDE << stage)) for stage in reversed(range(stages))]
    context.builder.add_value("backbone_features", maps, f"{stages} feature maps of zeros, each twice as fine")


def add_encoder_hidden_states(context: InputContext) -> None:
    """What a decoder that stands alone reads beside its own tokens."""
    width = positive_int(context.config, "cross_hidden_size") or _width(context)
    context.builder.floats("encoder_hidden_states", (context.batch, _WORDS, width), "random features of a text")


def add_boxes(context: InputContext) -> None:
    """Boxes that a user drew, and the feature map of the image."""
    box = torch.tensor([0.5, 0.5, 0.2, 0.2]).expand(context.batch, _BOXES, 4).clone()
    context.builder.add("box_embeddings", box, "the same box several times")
    context.builder.ones("box_mask", (context.batch, _BOXES), dtype=torch.bool, what="all boxes count")
    context.builder.ones("box_labels", (context.batch, _BOXES), what="all boxes are positive")
    context.builder.add_value("img_feats", (torch.zeros(_map(context, _SIDE)),), "a feature map of zeros")


def _width(context: InputContext) -> int:
    own = positive_int(context.config, "hidden_size", "d_model")
    return own or positive_int(nested_config(context.config, "text_config"), "hidden_size") or 1


def _map(context: InputContext, side: int) -> tuple[int, int, int, int]:
    return context.batch, _width(context), side, side
