"""Images, videos and their masks."""

import torch

from torchstone.models.made_up.scene import Scene, number, pair, parts

_DEFAULT_FRAMES = 8
_FRAMED = {"timesformer", "xclip"}
_GRID_SIDE = 4  # patches; divisible by every merge size in use


def add_pixel_values(scene: Scene) -> None:
    """Images, or videos for models whose images have frames."""
    height, width = scene.image_sides()
    shape: tuple[int, ...] = (scene.batch, channels(scene), height, width)
    frames = number(scene.config, "num_frames")
    if (frames is not None and "tubelet_size" in vars(scene.config)) or scene.config.model_type in _FRAMED:
        shape = (scene.batch, frames or _DEFAULT_FRAMES, *shape[1:])
    scene.draft.floats("pixel_values", shape, "random pixels")


def add_pixel_mask(scene: Scene) -> None:
    """All pixels of all images count."""
    scene.draft.ones("pixel_mask", (scene.batch, *scene.image_sides()), what="all pixels count")


def add_pixel_values_videos(scene: Scene) -> None:
    """Videos, frames first."""
    frames = number(scene.vision, "num_frames", "frames_per_clip") or _DEFAULT_FRAMES
    shape = (scene.batch, frames, channels(scene), *scene.image_sides())
    scene.draft.floats("pixel_values_videos", shape, "random pixels")


def add_patches(scene: Scene, name: str) -> None:
    """One image a sample, cut into flattened patches, with the grid they came from."""
    features = channels(scene) * (number(scene.vision, "temporal_patch_size") or 1) * _patch_area(scene)
    scene.draft.floats(name, (scene.batch * _GRID_SIDE * _GRID_SIDE, features), "random patches")


def add_grid(scene: Scene, name: str) -> None:
    """Frames, rows and columns of patches of each image."""
    grid = torch.tensor([[1, _GRID_SIDE, _GRID_SIDE]]).expand(scene.batch, 3).clone()
    scene.draft.put(name, grid, "frames, rows and columns of patches")


def add_bool_masked_pos(scene: Scene) -> None:
    """Which patches are masked: none of them."""
    patch = pair(getattr(scene.vision, "patch_size", None)) or (1, 1)
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


def _patch_area(scene: Scene) -> int:
    height, width = pair(getattr(scene.vision, "patch_size", None)) or (1, 1)
    return height * width
