from itertools import combinations
from math import gcd

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.formula.derive.benches import seeded
from torchstone.formula.derive.samples import plan_of
from torchstone.formula.derive.sampling_plans import Plan, nth_prime, parameters_of

MODEL_TYPES = ("llama", "mixtral", "gpt2", "bert", "t5", "deepseek_v3", "vit")


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_sizes_of_a_point_share_no_factor(model_type: str) -> None:
    plan = plan_of(model_type)

    general = [point for point in plan.points() if 1 not in point.values.values() and not point.guard]
    coprime = [point for point in general if all(gcd(a, b) == 1 for a, b in combinations(point.values.values(), 2))]

    assert len(coprime) >= 5


def test_every_combination_of_edges_has_points_of_its_own() -> None:
    plan = plan_of("llama")
    ones = {tuple(name for name in plan.edges if point.values[name] == 1) for point in plan.points() if not point.guard}

    assert ones == {(), ("B",), ("heads_per_kv_head",), ("B", "heads_per_kv_head")}


def test_coordinates_lead_to_parameters_and_back() -> None:
    plan = plan_of("llama")
    values = plan.points()[0].values

    parameters = plan.parameters(values)

    assert parameters["num_heads"] == values["num_kv_heads"] * values["heads_per_kv_head"]
    assert plan.coordinates.point(parameters)["heads_per_kv_head"] == values["heads_per_kv_head"]


def test_a_model_with_two_sequences_has_two_lengths() -> None:
    plan = plan_of("t5")

    assert {"S_encoder", "S_decoder"} <= plan.parameters(plan.points()[0].values).keys()


def test_a_limit_is_probed_on_both_sides() -> None:
    points = plan_of("llama").points()

    assert [point.values["head_dim_part"] for point in points[-2:]] == [128, 131]
    assert points[-1].guard == "head_dim <= 256"


def test_the_parameters_of_a_configuration_have_the_names_of_formulas() -> None:
    from transformers import LlamaConfig

    found = parameters_of(LlamaConfig())

    assert (found["num_heads"], found["num_kv_heads"], found["head_dim"]) == (32, 32, 128)
    assert found["num_hidden_layers"] == 32


def test_random_points_are_the_same_for_the_same_seed() -> None:
    plan = Plan(free=["hidden_size"])

    assert plan.random_points(seeded(1), 3) == plan.random_points(seeded(1), 3)


def test_primes_are_counted_from_a_number_on() -> None:
    assert [nth_prime(number, smallest=10) for number in range(4)] == [11, 13, 17, 19]


def test_random_points_have_buckets_enough_to_divide_by() -> None:
    drawn = Plan(free=["relative_attention_num_buckets"]).random_points(seeded(0), 200)

    assert min(point.values["relative_attention_num_buckets"] for point in drawn) == 4


def test_a_model_whose_heads_all_rotate_in_part_has_parameters() -> None:
    """DeepSeek-V4 has a rotary part of each head, but no width of the rest."""
    found = parameters_of(CONFIG_MAPPING["deepseek_v4"]())
    assert found["num_heads"] > 0
    assert "qk_head_dim" not in found
