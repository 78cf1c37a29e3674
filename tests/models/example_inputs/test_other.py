from collections.abc import Callable

from torchstone.models.example_inputs import signals
from torchstone.models.example_inputs.context import InputContext

ContextOf = Callable[..., InputContext]


def test_a_series_reaches_back_by_the_largest_lag(context_of: ContextOf) -> None:
    context = context_of("time_series_transformer")
    signals.add_past_values(context)
    signals.add_past_time_features(context)
    signals.add_past_observed_mask(context)
    length = context.config.context_length + max(context.config.lags_sequence)
    assert context.builder.kwargs["past_values"].shape == (1, length)
    assert context.builder.kwargs["past_time_features"].shape == (1, length, context.config.num_time_features)
    assert context.builder.kwargs["past_observed_mask"].shape == (1, length)


def test_a_series_has_a_column_for_each_channel(context_of: ContextOf) -> None:
    context = context_of("patchtst")
    signals.add_past_values(context)
    assert context.builder.kwargs["past_values"].shape == (
        1,
        context.config.context_length,
        context.config.num_input_channels,
    )


def test_a_point_is_given_for_each_image(context_of: ContextOf) -> None:
    context = context_of("sam")
    signals.add_input_points(context)
    assert context.builder.kwargs["input_points"].shape == (1, 1, 1, 2)


def test_patches_carry_their_row_and_column(context_of: ContextOf) -> None:
    context = context_of("pix2struct")
    signals.add_flattened_patches(context)
    width = context.config.vision_config.patch_embed_hidden_size
    assert context.builder.kwargs["flattened_patches"].shape[-1] == 2 + width


def test_a_trajectory_has_all_its_parts(context_of: ContextOf) -> None:
    context = context_of("decision_transformer")
    signals.add_states(context)
    assert set(context.builder.kwargs) == {
        "states",
        "actions",
        "rewards",
        "returns_to_go",
        "timesteps",
        "attention_mask",
    }


def test_perceiver_reads_ids_under_its_own_name(context_of: ContextOf) -> None:
    context = context_of("perceiver")
    signals.add_perceiver_inputs(context)
    assert set(context.builder.kwargs) == {"inputs", "attention_mask"}


def test_hidden_states_are_patches_where_a_grid_is_asked_for(context_of: ContextOf) -> None:
    context = context_of("qwen2_vl_vision")
    signals.add_hidden_states(context)
    assert "random patches" in context.builder.notes[0]
