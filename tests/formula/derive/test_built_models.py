import torch

from torchstone.formula.derive.samples import build_at, plan_of
from torchstone.formula.derive.validate import Options


def test_a_model_has_the_sizes_of_its_point() -> None:
    plan = plan_of("llama")
    values = plan.points()[0].values

    built = build_at("llama", plan, values, Options(dtype="bfloat16", use_cache=False))

    assert built.inputs.kwargs["input_ids"].shape == (values["B"], values["S"])
    assert built.inputs.kwargs["use_cache"] is False
    assert built.known["hidden_size"] == values["hidden_size"]
    assert next(built.model.parameters()).dtype is torch.bfloat16
    assert all(parameter.is_meta for parameter in built.model.parameters())


def test_eager_attention_can_be_asked_for() -> None:
    plan = plan_of("llama")

    built = build_at("llama", plan, plan.points()[0].values, Options(attention="eager"))

    config: object = built.model.config
    assert getattr(config, "_attn_implementation", None) == "eager"


def test_a_decoder_has_a_length_of_its_own() -> None:
    plan = plan_of("t5")
    values = plan.points()[0].values

    built = build_at("t5", plan, values, Options())

    assert built.inputs.kwargs["decoder_input_ids"].shape == (values["B"], values["S_decoder"])
    assert built.known["S_encoder"] == values["S"]
