"""Query, key and value (gate and up) that a port fuses or splits, in every arrangement, with values right and wrong."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from tests.reference.test_layouts import tiles
from torchstone.record.reference import GoldenData, GoldenTensor, MatchedBy, Rebuild, Role, Status, Weights
from torchstone.reference import compare
from torchstone.reference.fused import place_of, split_to
from torchstone.reference.golden_files import Golden

PATH = "encoder.layer.0.attention.self"
HEADS = 4
GENERATOR = torch.Generator().manual_seed(0)
PARTS = {name: torch.randn(2, 7, 64, generator=GENERATOR) for name in ("query", "key", "value")}
GROUPED = {  # one key and value for two queries
    "query": torch.randn(2, 7, 64, generator=GENERATOR),
    "key": torch.randn(2, 7, 32, generator=GENERATOR),
    "value": torch.randn(2, 7, 32, generator=GENERATOR),
}


def golden_of(**tensors: Tensor) -> Golden:
    """Golden data with these modules of one attention layer."""
    about = tuple(
        GoldenTensor(
            name=f"modules/{PATH}.{name}/outputs",
            role=Role.MODULE_OUTPUT,
            shape=tuple(tensor.shape),
            dtype="float32",
            module=f"{PATH}.{name}",
        )
        for name, tensor in tensors.items()
    )
    data = GoldenData(
        model="net", rebuild=Rebuild(model="net"), seed=0, dtypes=(), versions={}, threads=1, created="", inputs=None,
        outputs=None, tensors=about, weights=Weights(sha256="", tensors=0, size_bytes=0),
    )  # fmt: skip
    return Golden(data=data, tensors={one.name: tensor for one, tensor in zip(about, tensors.values(), strict=True)})


def interleaved(parts: dict[str, Tensor], groups: int) -> Tensor:
    """[q0 k0 v0 q1 k1 v1 ...] along the last dimension."""
    rows = [part.reshape(2, 7, groups, -1) for part in parts.values()]
    return torch.cat(rows, dim=-1).reshape(2, 7, -1)


@pytest.mark.parametrize("parts", [PARTS, GROUPED], ids=["equal", "grouped"])
@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("name", [f"{PATH}.qkv", f"modules/{PATH}.query_key_value/outputs", "anything"])
def test_one_tensor_is_split_into_query_key_and_value(parts: dict[str, Tensor], groups: int, name: str) -> None:
    found = compare(golden_of(**parts), {name: tiles(interleaved(parts, groups))[None]})

    assert found.passed
    assert found.counts == {"passed": 3}
    first = found.verdicts[0]
    assert first.matched_by is (MatchedBy.VALUE if name == "anything" else MatchedBy.NAME)
    turns = f", interleaved in {groups} groups" if groups > 1 else ""
    assert first.layout == ("drop tile padding", "squeeze leading dimensions", f"split q, k, v{turns}")
    assert "matches after: drop tile padding" in first.detail


def test_a_wrong_part_of_a_fused_tensor_is_the_only_wrong_one() -> None:
    spoilt = PARTS | {"key": PARTS["key"] * 1.5}

    found = compare(golden_of(**PARTS), {f"{PATH}.qkv": interleaved(spoilt, HEADS)})

    assert [one.status for one in found.verdicts] == [Status.PASSED, Status.WRONG_VALUES, Status.PASSED]
    assert "wrong even after: split q, k, v, interleaved in 4 groups" in found.verdicts[1].detail


def test_parts_in_another_order_are_wrong() -> None:
    swapped = dict(zip(PARTS, (PARTS["key"], PARTS["query"], PARTS["value"]), strict=True))

    found = compare(golden_of(**PARTS), {f"{PATH}.qkv": interleaved(swapped, 1)})

    assert [one.status for one in found.verdicts] == [Status.WRONG_VALUES, Status.WRONG_VALUES, Status.PASSED]


@pytest.mark.parametrize("parts", [PARTS, GROUPED], ids=["equal", "grouped"])
@pytest.mark.parametrize("groups", [1, 2])
def test_three_tensors_are_merged_where_the_golden_data_has_one(parts: dict[str, Tensor], groups: int) -> None:
    golden = golden_of(c_attn=interleaved(parts, groups))
    own = dict(zip(("q_proj", "k_proj", "v_proj"), parts.values(), strict=True))
    port = {f"{PATH}.{name}": tensor[None] for name, tensor in own.items()}

    found = compare(golden, port)
    wrong = compare(golden, port | {f"{PATH}.k_proj": port[f"{PATH}.k_proj"] * -1})

    assert found.passed
    turns = f", interleaved in {groups} groups" if groups > 1 else ""
    assert found.verdicts[0].layout == ("squeeze leading dimensions", f"merge q, k, v{turns}")
    assert wrong.verdicts[0].status is Status.WRONG_VALUES


def test_heads_that_a_port_keeps_apart_are_merged_too() -> None:
    golden = golden_of(qkv=interleaved(PARTS, 1))
    port = {
        f"{PATH}.{name}": tiles(part.reshape(2, 7, HEADS, 16).transpose(1, 2))
        for name, part in zip("qkv", PARTS.values(), strict=True)
    }

    assert compare(golden, port).passed


def test_a_map_names_the_parts_of_a_fused_tensor() -> None:
    golden = golden_of(**PARTS)
    names = {"fused": [f"{PATH}.{part}" for part in PARTS]}

    found = compare(golden, {"fused": interleaved(PARTS, 2)}, names=names)

    assert found.passed
    assert {one.matched_by for one in found.verdicts} == {MatchedBy.MAP}


def test_gate_and_up_are_a_fused_pair() -> None:
    gate, up = torch.randn(2, 7, 48), torch.randn(2, 7, 48)
    golden = golden_of(gate_proj=gate, up_proj=up)

    found = compare(golden, {f"{PATH}.gate_up_proj": torch.cat((gate, up), dim=-1)})

    assert found.passed
    assert found.verdicts[0].layout == ("split 2 parts",)


def test_weights_are_joined_along_their_first_dimension() -> None:
    weights = {name: torch.randn(8, 12) for name in "qkv"}

    found = split_to(weights, torch.cat(list(weights.values())).T)

    assert found is not None
    assert found.words == ("transpose", "split q, k, v along dimension 0")
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in weights.items())


def test_what_is_too_small_for_the_parts_is_not_split() -> None:
    assert split_to(PARTS, torch.randn(2, 7, 100)) is None
    assert split_to(PARTS | {"more": torch.randn(3)}, pad(torch.randn(2, 7, 192), (0, 8))) is None


@pytest.mark.parametrize("name", ["logits", "encoder.layer.0", "modules/head/outputs"])
def test_other_names_are_no_projections(name: str) -> None:
    assert place_of(name) is None
