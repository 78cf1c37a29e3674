"""Images, videos and their masks; and text with placeholders for image features."""

from typing import Any

import torch

from torchstone.foreign import foreign_code
from torchstone.models.example_inputs.context import (
    DEFAULT_FRAMES,
    InputContext,
    height_width,
    nested_configs,
    positive_int,
)
from torchstone.models.example_inputs.text import add_attention_mask, text_length, vocabulary
from torchstone.units import many

# --- Images, videos and their masks ---

_REGIONS = 10
_FRAMED = {"timesformer", "xclip"}
_SQUARE_PATCHES = {"paddleocr_vl", "paddleocr_vl_vision", "kimi_k25_vision"}  # they do not flatten them
_CLIPS = {"instructblipvideo"}  # they read a few frames in place of an image
_CLIP = 4  # frames
# Models whose images have a dimension of their own, and how many are given: some match two, one reads any number.
_SEVERAL = {"lightglue": 2, "superglue": 2, "efficientloftr": 2, "idefics": 1, **dict.fromkeys(_CLIPS, _CLIP)}
_ROWS_OF_PATCHES = {"paddleocr_vl_vision"}  # one row of square patches for all samples, with an optional grid
_GRID_SIDE = 4  # patches; divisible by every merge size in use


def add_pixel_values(context: InputContext, name: str = "pixel_values") -> None:
    """Images; flattened patches for models that ask for their grid; videos for models whose images have frames."""
    if "grid_thw" in context.required:
        add_patches(context, name)
        return
    if context.config.model_type in _ROWS_OF_PATCHES:
        add_patches(context, name)
        add_grid(context, "grid_thw")
        return
    height, width = context.image_sides()
    shape: tuple[int, ...] = (context.batch, channels(context), height, width)
    frames = positive_int(context.config, "num_frames")
    if (frames is not None and "tubelet_size" in vars(context.config)) or context.config.model_type in _FRAMED:
        shape = (context.batch, frames or DEFAULT_FRAMES, *shape[1:])
    if context.config.model_type == "xclip_vision_model":  # frames are samples to it
        shape = (context.batch * (frames or DEFAULT_FRAMES), *shape[1:])
    several = _SEVERAL.get(context.config.model_type)
    if several is not None:
        shape = (context.batch, several, *shape[1:])
    context.builder.floats(name, shape, "random pixels")


def add_image_attention_mask(context: InputContext) -> None:
    """Which images each token of a text attends to."""
    images, tokens = context.builder.kwargs["pixel_values"].shape[1], context.builder.kwargs["input_ids"].shape[1]
    shape = (context.batch, tokens, images)
    context.builder.ones("image_attention_mask", shape, what="all ones, each token attends to each image")


def add_spatial_shapes(context: InputContext) -> None:
    """Patches of images of any shape, with rows and columns, in place of pixels."""
    if "pixel_values" not in context.parameters:  # a part that reads features: the sides of each feature map
        context.builder.add("spatial_shapes", torch.tensor([[_GRID_SIDE, _GRID_SIDE]]), "sides of the feature map")
        return
    count = _GRID_SIDE * _GRID_SIDE
    context.builder.remove("pixel_values")
    context.builder.floats(
        "pixel_values", (context.batch, count, channels(context) * _patch_area(context)), "random patches"
    )
    context.builder.ones("pixel_attention_mask", (context.batch, count), what="all patches count")
    context.builder.add("spatial_shapes", rows_and_columns(context), "rows and columns of patches")


def rows_and_columns(context: InputContext) -> torch.Tensor:
    """Rows and columns of patches of each image."""
    return torch.tensor([[_GRID_SIDE, _GRID_SIDE]]).expand(context.batch, 2).clone()


def add_pixel_mask(context: InputContext) -> None:
    """All pixels of all images count."""
    context.builder.ones("pixel_mask", (context.batch, *context.image_sides()), what="all pixels count")


def add_pixel_values_videos(context: InputContext) -> None:
    """Videos, frames first."""
    frames = positive_int(context.vision, "num_frames", "frames_per_clip") or DEFAULT_FRAMES
    shape = (context.batch, frames, channels(context), *context.image_sides())
    context.builder.floats("pixel_values_videos", shape, "random pixels")


def add_patches(context: InputContext, name: str) -> None:
    """One image a sample, cut into patches, which most models want flattened."""
    count = context.batch * _GRID_SIDE * _GRID_SIDE
    frames = positive_int(context.vision, "temporal_patch_size", "patch_temporal") or 1
    shape: tuple[int, ...] = (count, channels(context) * frames * _patch_area(context))
    if context.config.model_type in _SQUARE_PATCHES:
        shape = (count, channels(context), *_patch_sides(context))
    if context.config.model_type in _ROWS_OF_PATCHES:
        shape = (1, *shape)
    context.builder.floats(name, shape, "random patches")


def add_grid(context: InputContext, name: str) -> None:
    """Frames, rows and columns of patches of each image."""
    grid = torch.tensor([[1, _GRID_SIDE, _GRID_SIDE]]).expand(context.batch, 3).clone()
    context.builder.add(name, grid, "frames, rows and columns of patches")


def add_target_sizes(context: InputContext) -> None:
    """All patches of all images in one row of pixels, and the rows and columns of patches of each image."""
    side, across = _patch_sides(context)
    count = context.batch * _GRID_SIDE * _GRID_SIDE
    context.builder.remove("pixel_values")
    context.builder.floats("pixel_values", (1, channels(context), side, across * count), "random patches in a row")
    context.builder.add("target_sizes", rows_and_columns(context), "rows and columns of patches")


def add_image_places(context: InputContext) -> None:
    """Which positions of a text are the image's, as Kosmos-2 reads them: one for each query."""
    places = torch.zeros((context.batch, context.builder.kwargs["input_ids"].shape[1]), dtype=torch.int64)
    places[:, 1 : 1 + (positive_int(context.config, "latent_query_num") or 0)] = 1
    context.builder.add("image_embeds_position_mask", places, "1 where the image is")


def add_merge_sizes(context: InputContext) -> None:
    """How many patches of each image are merged to a side: none."""
    context.builder.ones("merge_sizes", (context.batch,), what="patches are not merged")


def add_visual_feats(context: InputContext) -> None:
    """Regions of an image found by another model, with their boxes, as LXMERT reads them."""
    width = positive_int(context.config, "visual_feat_dim") or 1
    context.builder.floats("visual_feats", (context.batch, _REGIONS, width), "random region features")
    context.builder.floats("visual_pos", (context.batch, _REGIONS, 4), "random boxes")


def add_bool_masked_pos(context: InputContext) -> None:
    """Which patches are masked: none of them."""
    patch = _patch_sides(context)
    height, width = context.image_sides()
    count = (height // patch[0]) * (width // patch[1])
    context.builder.zeros("bool_masked_pos", (context.batch, count), dtype=torch.bool, what="no patch is masked")


def channels(context: InputContext) -> int:
    """Colour channels of an image."""
    for config in (context.vision, context.config, *nested_configs(context.config)):
        found = positive_int(config, "num_channels", "in_channels", "in_chans", "image_channels")
        if found is not None:
            return found
    return 3


def _patch_area(context: InputContext) -> int:
    height, width = _patch_sides(context)
    return height * width


def _patch_sides(context: InputContext) -> tuple[int, int]:
    return height_width(getattr(context.vision, "patch_size", None)) or (1, 1)


# --- Text with image placeholders: a model needs exactly one placeholder per image feature ---

_TEXT_AROUND = 16  # tokens of text beside the image when no length was requested
_GRID_OF_TWO = "image_grid_hw"
_IMAGE_INPUTS = ("pixel_values", "image_grid_thw", _GRID_OF_TWO)
_LOOK_AHEAD = ("image_token_id", "image_token_index", "image_token")


def image_token(context: InputContext) -> int | None:
    """The token id of an image placeholder, if the model has one."""
    for name in _LOOK_AHEAD:
        value = getattr(context.config, name, None)
        if isinstance(value, int) and 0 <= value < vocabulary(context):
            return value
    return None


def add_images_and_text(context: InputContext) -> None:
    """An image and a text with one placeholder per feature; text alone where the number of features is unknown."""
    token = image_token(context)
    if token is None:
        return
    places = _add_image(context)
    if places is None:
        for name in _IMAGE_INPUTS:
            context.builder.remove(name)
        context.builder.notes.append("pixel_values: omitted, the model is called with text only")
        return
    around = text_length(context)
    if context.options.seq_len is None:
        around = min(around, _TEXT_AROUND)
    length = places + around
    ids = context.builder.tokens(
        "input_ids", (context.batch, length), below=vocabulary(context), avoid=context.special_tokens()
    )
    ids[:, 1 : places + 1] = token
    context.builder.notes.append(
        f"input_ids: {places} of {many(length, 'place')} in each text are the image's (id {token})"
    )
    add_attention_mask(context, (context.batch, length))
    if "mm_token_type_ids" in context.parameters:
        kinds = (ids == token).long()
        context.builder.add("mm_token_type_ids", kinds, "1 where the image is")


def _add_image(context: InputContext) -> int | None:
    """Add the image; the number of features each one becomes."""
    if "image_grid_thw" in context.parameters:
        add_patches(context, "pixel_values")
        add_grid(context, "image_grid_thw")
    elif _GRID_OF_TWO in context.parameters:
        add_patches(context, "pixel_values")
        context.builder.add(_GRID_OF_TWO, rows_and_columns(context), "rows and columns of patches")
    else:
        add_pixel_values(context)
    queries = positive_int(context.config, "num_query_tokens")
    if queries is not None:
        return queries * (_CLIP if context.config.model_type in _CLIPS else 1)
    features = _features(context)
    if features is not None:
        return features // context.batch
    merge = positive_int(context.vision, "spatial_merge_size")
    if "image_grid_thw" in context.builder.kwargs and merge is not None:
        return int(context.builder.kwargs["image_grid_thw"][0].prod()) // merge**2
    return None


def _features(context: InputContext) -> int | None:
    """Run the model's own image encoder and count the features it returns."""
    model: Any = context.model
    ask = getattr(model, "get_image_features", None) or getattr(
        getattr(model, "model", None), "get_image_features", None
    )
    if ask is None:
        return None
    first = next(model.parameters())
    names = [name for name in _IMAGE_INPUTS if name in context.builder.kwargs]
    given = {name: context.builder.kwargs[name] for name in names}
    given = {name: value.to(first.dtype) if value.is_floating_point() else value for name, value in given.items()}
    if first.device.type == "meta":
        given["pixel_values"] = given["pixel_values"].to("meta")
    with foreign_code() as ran, torch.no_grad():  # whatever the encoder raises, the model can run on text alone
        answer = ask(**given)
    if ran.error is not None:
        return None
    return _count(answer)


def _count(answer: object) -> int | None:
    features = getattr(answer, "pooler_output", answer)
    features = getattr(answer, "last_hidden_state", None) if features is None else features
    pieces = list(features) if isinstance(features, list | tuple) else [features]
    tensors = [piece for piece in pieces if isinstance(piece, torch.Tensor)]
    if not pieces or len(tensors) < len(pieces):
        return None
    return sum(tensor.numel() // tensor.shape[-1] for tensor in tensors)
