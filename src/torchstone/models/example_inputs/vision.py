"""Images, videos and their masks; and text with placeholders for image features."""

from typing import Any

import torch

from torchstone.models.example_inputs.context import Scene, number, pair, parts
from torchstone.models.example_inputs.text import add_attention_mask, text_length, vocabulary

# Images, videos and their masks.


_REGIONS = 10
_DEFAULT_FRAMES = 8
_FRAMED = {"timesformer", "xclip"}
_SQUARE_PATCHES = {"paddleocr_vl", "kimi_k25_vision"}  # they do not flatten them
_PAIRED = {"lightglue", "superglue", "efficientloftr"}  # they match two images
_GRID_SIDE = 4  # patches; divisible by every merge size in use


def add_pixel_values(scene: Scene, name: str = "pixel_values") -> None:
    """Images; flattened patches for models that ask for their grid; videos for models whose images have frames."""
    if "grid_thw" in scene.required:
        add_patches(scene, name)
        return
    height, width = scene.image_sides()
    shape: tuple[int, ...] = (scene.batch, channels(scene), height, width)
    frames = number(scene.config, "num_frames")
    if (frames is not None and "tubelet_size" in vars(scene.config)) or scene.config.model_type in _FRAMED:
        shape = (scene.batch, frames or _DEFAULT_FRAMES, *shape[1:])
    if scene.config.model_type == "xclip_vision_model":  # frames are samples to it
        shape = (scene.batch * (frames or _DEFAULT_FRAMES), *shape[1:])
    if scene.config.model_type in _PAIRED:
        shape = (scene.batch, 2, *shape[1:])
    scene.draft.floats(name, shape, "random pixels")


def add_spatial_shapes(scene: Scene) -> None:
    """Patches of images of any shape, with rows and columns, in place of pixels."""
    rows_and_columns = torch.tensor([[_GRID_SIDE, _GRID_SIDE]]).expand(scene.batch, 2).clone()
    count = _GRID_SIDE * _GRID_SIDE
    scene.draft.forget("pixel_values")
    scene.draft.floats("pixel_values", (scene.batch, count, channels(scene) * _patch_area(scene)), "random patches")
    scene.draft.ones("pixel_attention_mask", (scene.batch, count), what="all patches count")
    scene.draft.put("spatial_shapes", rows_and_columns, "rows and columns of patches")


def add_pixel_mask(scene: Scene) -> None:
    """All pixels of all images count."""
    scene.draft.ones("pixel_mask", (scene.batch, *scene.image_sides()), what="all pixels count")


def add_pixel_values_videos(scene: Scene) -> None:
    """Videos, frames first."""
    frames = number(scene.vision, "num_frames", "frames_per_clip") or _DEFAULT_FRAMES
    shape = (scene.batch, frames, channels(scene), *scene.image_sides())
    scene.draft.floats("pixel_values_videos", shape, "random pixels")


def add_patches(scene: Scene, name: str) -> None:
    """One image a sample, cut into patches, which most models want flattened."""
    count = scene.batch * _GRID_SIDE * _GRID_SIDE
    shape: tuple[int, ...] = (count, channels(scene) * _frames_in_a_patch(scene) * _patch_area(scene))
    if scene.config.model_type in _SQUARE_PATCHES:
        shape = (count, channels(scene), *_patch_sides(scene))
    scene.draft.floats(name, shape, "random patches")


def add_grid(scene: Scene, name: str) -> None:
    """Frames, rows and columns of patches of each image."""
    grid = torch.tensor([[1, _GRID_SIDE, _GRID_SIDE]]).expand(scene.batch, 3).clone()
    scene.draft.put(name, grid, "frames, rows and columns of patches")


def add_merge_sizes(scene: Scene) -> None:
    """How many patches of each image are merged to a side: none."""
    scene.draft.ones("merge_sizes", (scene.batch,), what="patches are not merged")


def add_visual_feats(scene: Scene) -> None:
    """Regions of an image found by another model, with their boxes, as LXMERT reads them."""
    width = number(scene.config, "visual_feat_dim") or 1
    scene.draft.floats("visual_feats", (scene.batch, _REGIONS, width), "random region features")
    scene.draft.floats("visual_pos", (scene.batch, _REGIONS, 4), "random boxes")


def add_bool_masked_pos(scene: Scene) -> None:
    """Which patches are masked: none of them."""
    patch = _patch_sides(scene)
    height, width = scene.image_sides()
    count = (height // patch[0]) * (width // patch[1])
    scene.draft.zeros("bool_masked_pos", (scene.batch, count), dtype=torch.bool, what="no patch is masked")


def channels(scene: Scene) -> int:
    """Colour channels of an image."""
    for config in (scene.vision, scene.config, *parts(scene.config)):
        found = number(config, "num_channels", "in_channels", "in_chans", "image_channels")
        if found is not None:
            return found
    return 3


def _frames_in_a_patch(scene: Scene) -> int:
    return number(scene.vision, "temporal_patch_size", "patch_temporal") or 1


def _patch_area(scene: Scene) -> int:
    height, width = _patch_sides(scene)
    return height * width


def _patch_sides(scene: Scene) -> tuple[int, int]:
    return pair(getattr(scene.vision, "patch_size", None)) or (1, 1)


# Text with places for images: the places must be as many as the features the model makes of its images.


_TEXT_AROUND = 16  # tokens of text beside the image when no length was asked for
_LOOK_AHEAD = ("image_token_id", "image_token_index", "image_token")


def image_token(scene: Scene) -> int | None:
    """The id that marks a place for an image feature, if the model has one."""
    for name in _LOOK_AHEAD:
        value = getattr(scene.config, name, None)
        if isinstance(value, int) and 0 <= value < vocabulary(scene):
            return value
    return None


def add_images_and_text(scene: Scene) -> None:
    """An image and a text with as many places as it has features; text alone where that cannot be told."""
    token = image_token(scene)
    if token is None:
        return
    places = _add_image(scene)
    if places is None:
        for name in ("pixel_values", "image_grid_thw"):
            scene.draft.forget(name)
        scene.draft.notes.append("pixel_values: left out, the model is called with text only")
        return
    around = scene.options.seq_len or min(text_length(scene), _TEXT_AROUND)
    length = places + around
    ids = scene.draft.tokens("input_ids", (scene.batch, length), below=vocabulary(scene), avoid=scene.special_tokens())
    ids[:, 1 : places + 1] = token
    scene.draft.notes.append(f"input_ids: {places} of {length} places in each text are the image's (id {token})")
    add_attention_mask(scene, (scene.batch, length))
    if "mm_token_type_ids" in scene.parameters:
        kinds = (ids == token).long()
        scene.draft.put("mm_token_type_ids", kinds, "1 where the image is")


def _add_image(scene: Scene) -> int | None:
    """Add the image; the number of features each one becomes."""
    if "image_grid_thw" in scene.parameters:
        add_patches(scene, "pixel_values")
        add_grid(scene, "image_grid_thw")
    else:
        add_pixel_values(scene)
    queries = number(scene.config, "num_query_tokens")
    if queries is not None:
        return queries
    features = _features(scene)
    if features is not None:
        return features // scene.batch
    merge = number(scene.vision, "spatial_merge_size")
    if "image_grid_thw" in scene.draft.kwargs and merge is not None:
        return int(scene.draft.kwargs["image_grid_thw"][0].prod()) // merge**2
    return None


def _features(scene: Scene) -> int | None:
    """Ask the model itself how many features it makes of the images."""
    model: Any = scene.model
    ask = getattr(model, "get_image_features", None) or getattr(
        getattr(model, "model", None), "get_image_features", None
    )
    if ask is None:
        return None
    first = next(model.parameters())
    names = [name for name in ("pixel_values", "image_grid_thw") if name in scene.draft.kwargs]
    given = {name: scene.draft.kwargs[name] for name in names}
    given = {name: value.to(first.dtype) if value.is_floating_point() else value for name, value in given.items()}
    if first.device.type == "meta":
        given["pixel_values"] = given["pixel_values"].to("meta")
    try:
        with torch.no_grad():
            answer = ask(**given)
    except Exception:  # noqa: BLE001 - whatever keeps the model from answering, the text can go without an image
        return None
    return _count(answer)


def _count(answer: Any) -> int | None:
    answer = getattr(answer, "pooler_output", answer)
    pieces = list(answer) if isinstance(answer, list | tuple) else [answer]
    if not pieces or not all(isinstance(piece, torch.Tensor) for piece in pieces):
        return None
    return sum(piece.numel() // piece.shape[-1] for piece in pieces)
