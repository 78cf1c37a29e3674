"""Text with places for images: the places must be as many as the features the model makes of its images."""

from typing import Any

import torch

from torchstone.models.made_up.scene import Scene, number
from torchstone.models.made_up.text import add_attention_mask, text_length, vocabulary
from torchstone.models.made_up.vision import add_grid, add_patches, add_pixel_values

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
