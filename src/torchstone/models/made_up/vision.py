"""Images, videos and their masks."""

import torch

from torchstone.models.made_up.scene import Scene, number, pair, parts

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
