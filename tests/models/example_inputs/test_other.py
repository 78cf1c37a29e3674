from collections.abc import Callable

from torchstone.models.example_inputs import signals
from torchstone.models.example_inputs.context import Scene

SceneOf = Callable[..., Scene]


def test_a_series_reaches_back_by_the_largest_lag(scene_of: SceneOf) -> None:
    scene = scene_of("time_series_transformer")
    signals.add_past_values(scene)
    signals.add_past_time_features(scene)
    signals.add_past_observed_mask(scene)
    length = scene.config.context_length + max(scene.config.lags_sequence)
    assert scene.draft.kwargs["past_values"].shape == (1, length)
    assert scene.draft.kwargs["past_time_features"].shape == (1, length, scene.config.num_time_features)
    assert scene.draft.kwargs["past_observed_mask"].shape == (1, length)


def test_a_series_has_a_column_for_each_channel(scene_of: SceneOf) -> None:
    scene = scene_of("patchtst")
    signals.add_past_values(scene)
    assert scene.draft.kwargs["past_values"].shape == (1, scene.config.context_length, scene.config.num_input_channels)


def test_a_point_is_given_for_each_image(scene_of: SceneOf) -> None:
    scene = scene_of("sam")
    signals.add_input_points(scene)
    assert scene.draft.kwargs["input_points"].shape == (1, 1, 1, 2)


def test_patches_carry_their_row_and_column(scene_of: SceneOf) -> None:
    scene = scene_of("pix2struct")
    signals.add_flattened_patches(scene)
    width = scene.config.vision_config.patch_embed_hidden_size
    assert scene.draft.kwargs["flattened_patches"].shape[-1] == 2 + width


def test_a_trajectory_has_all_its_parts(scene_of: SceneOf) -> None:
    scene = scene_of("decision_transformer")
    signals.add_states(scene)
    assert set(scene.draft.kwargs) == {"states", "actions", "rewards", "returns_to_go", "timesteps", "attention_mask"}


def test_perceiver_reads_ids_under_its_own_name(scene_of: SceneOf) -> None:
    scene = scene_of("perceiver")
    signals.add_perceiver_inputs(scene)
    assert set(scene.draft.kwargs) == {"inputs", "attention_mask"}


def test_hidden_states_are_patches_where_a_grid_is_asked_for(scene_of: SceneOf) -> None:
    scene = scene_of("qwen2_vl_vision")
    signals.add_hidden_states(scene)
    assert "random patches" in scene.draft.notes[0]
