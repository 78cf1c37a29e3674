from typing import Any

import pytest
import torch

from tests.backends.test_program import X, program, step
from torchstone.backends.program import program_module
from torchstone.backends.program_format import ATTENTION, portable

FLASH = "aten._scaled_dot_product_flash_attention_for_cpu.default"
EFFICIENT = "aten._scaled_dot_product_efficient_attention.default"
Q, K, V = ({"tensor": name} for name in "qkv")


def attention(*, outputs: str = "t u", **more: Any) -> dict[str, Any]:
    return program(step(FLASH, Q, K, V, outputs=["t", "u"], **more), inputs="q k v", outputs=outputs)


@pytest.mark.parametrize("more", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention_is_what_the_model_called_and_gives_the_same(more: dict[str, Any]) -> None:
    described = portable(attention(**more))
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))

    result = program_module(described)(q, k, v)

    assert [one["op"] for one in described["steps"]] == [ATTENTION]
    assert described["outputs"] == [{"tensor": "t"}]
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, **more)
    assert torch.allclose(result, expected, atol=1e-6)


def test_heads_that_are_shared_are_told() -> None:
    described = attention()
    described["steps"][0]["as_called"] = {"enable_gqa": True}
    q, k = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 5, 8)

    result = program_module(portable(described))(q, k, k)

    expected = torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    assert torch.allclose(result, expected, atol=1e-6)


def test_arguments_by_position_keep_their_meaning() -> None:
    mask = {"tensor": "m"}
    described = program(
        step(EFFICIENT, Q, K, V, mask, False, 0.0, True, outputs=["t", None]),  # noqa: FBT003 - as recorded
        inputs="q k v m",
    )

    assert portable(described)["steps"][0]["kwargs"] == {
        "query": Q, "key": K, "value": V, "attn_mask": mask, "dropout_p": 0.0, "is_causal": True
    }  # fmt: skip


def test_an_attention_mask_under_another_name_is_found() -> None:
    described = program(step(EFFICIENT, query=Q, key=K, value=V, attn_bias=X, outputs=["t"]), inputs="q k v x")

    assert portable(described)["steps"][0]["kwargs"]["attn_mask"] == X


def test_notes_that_a_step_reads_keep_the_kernel() -> None:
    described = attention()
    described["steps"].append(step("aten.sum.default", {"tensor": "u"}, outputs=["w"]))

    assert portable(described) == described


def test_notes_that_are_all_that_was_asked_for_keep_the_kernel() -> None:
    assert portable(attention(outputs="u")) == attention(outputs="u")


def test_other_programs_stay_as_they_are() -> None:
    described = program(step("aten.relu.default", X, outputs=["t"]))

    assert portable(described) == described
