"""The set-up of a port is compared before any layer is blamed."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from torchstone.errors import UnreadableFileError
from torchstone.record.reference import Comparison, SetupCheck
from torchstone.reference import compare
from torchstone.reference.golden_files import load_golden, save_golden
from torchstone.reference.make import Request, make_golden


class Attention(nn.Module):
    """Three projections and a norm, so that weights can be fused and rounded."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.query(x) * self.key(x) + self.value(x))


X = torch.linspace(-1, 1, 80).reshape(5, 16)


def golden_in(folder: Path, *, with_weights: bool = True) -> dict[str, Tensor]:
    """A reference in a folder; gives the weights."""
    model = Attention().eval()
    save_golden(folder, make_golden(model, X, Request()), weights_of=model if with_weights else None)
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def checks(found: Comparison) -> dict[str, SetupCheck]:
    return {one.aspect: one for one in found.setup}


def outputs(folder: Path) -> dict[str, Tensor]:
    return {"outputs": load_golden(folder).tensors["outputs"]}


def with_weights(folder: Path, weights: dict[str, Tensor]) -> Comparison:
    return compare(folder, outputs(folder) | {f"weights/{name}": one for name, one in weights.items()})


def test_a_port_that_states_nothing_leaves_everything_unknown(tmp_path: Path) -> None:
    golden_in(tmp_path)

    found = compare(tmp_path, outputs(tmp_path))

    assert found.passed
    assert [one.aspect for one in found.setup] == ["weights", "inputs", "mode", "dtype", "seed", "versions"]
    assert {one.same for one in found.setup} == {None}


def test_the_same_weights_are_the_same_in_any_precision_and_layout(tmp_path: Path) -> None:
    weights = golden_in(tmp_path)
    fused = {
        "qkv.weight": torch.cat([weights.pop(f"{part}.weight") for part in ("query", "key", "value")]).T,
        "qkv.bias": torch.cat([weights.pop(f"{part}.bias") for part in ("query", "key", "value")]),
    }

    found = checks(with_weights(tmp_path, {name: one.bfloat16() for name, one in (weights | fused).items()}))

    assert found["weights"].same is True
    assert found["weights"].detail == "8 of 8 tensors have the values of the reference"


@pytest.mark.parametrize("spoil", [lambda x: x * 1.01, lambda x: -x, lambda x: x.roll(1), lambda x: x + 1e-3])
def test_other_weights_are_named_before_any_layer(spoil: object, tmp_path: Path) -> None:
    weights = golden_in(tmp_path)
    assert callable(spoil)
    for name in ("key.weight", "value.bias"):
        weights[name] = spoil(weights[name])
    wrong = {"outputs": -load_golden(tmp_path).tensors["outputs"]}

    found = compare(tmp_path, wrong | {f"weights/{name}": one for name, one in weights.items()})

    assert checks(found)["weights"].names == ("key.weight", "value.bias")
    assert found.next_step.startswith("the port has other weights for 2 tensors: key.weight, value.bias: fix that")


@pytest.mark.parametrize("rename", [lambda name: f"tt.{name.replace('.', '_')}", lambda name: f"w{hash(name)}"])
def test_weights_are_recognised_under_other_names(rename: Callable[[str], str], tmp_path: Path) -> None:
    weights = golden_in(tmp_path)
    weights["key.weight"] = weights["key.weight"] * 1.5

    found = checks(with_weights(tmp_path, {rename(name): one.t().bfloat16() for name, one in weights.items()}))

    assert found["weights"].names == ("key.weight",)
    assert found["weights"].detail.startswith("the port has other weights for 1 tensor: key.weight")


def test_weights_that_fit_nothing_are_unknown_with_the_reason(tmp_path: Path) -> None:
    golden_in(tmp_path)

    found = checks(with_weights(tmp_path, {"x": torch.randn(3, 5)}))

    assert found["weights"].same is None
    assert "no weight of the port" in found["weights"].detail


def test_hashes_are_enough(tmp_path: Path) -> None:
    weights = golden_in(tmp_path, with_weights=False)
    hashes = {name: sha256(one.contiguous().numpy().tobytes()).hexdigest() for name, one in weights.items()}
    save_file(outputs(tmp_path), tmp_path / "port.safetensors")
    setup = tmp_path / "port.setup.json"

    setup.write_text(json.dumps({"weights": hashes}))
    assert checks(compare(tmp_path, tmp_path / "port.safetensors"))["weights"].same is True
    setup.write_text(json.dumps({"weights": hashes | {"norm.bias": "0" * 64}}))
    assert checks(compare(tmp_path, tmp_path / "port.safetensors"))["weights"].names == ("norm.bias",)


def test_without_golden_values_only_an_equal_hash_is_certain(tmp_path: Path) -> None:
    weights = golden_in(tmp_path, with_weights=False)

    assert checks(with_weights(tmp_path, weights))["weights"].same is True
    rounded = checks(with_weights(tmp_path, {name: one.bfloat16() for name, one in weights.items()}))["weights"]
    assert (rounded.same, "--with-weights" in rounded.detail) == (None, True)
    other = checks(with_weights(tmp_path, weights | {"norm.bias": weights["norm.bias"] + 1}))["weights"]
    assert other.names == ("norm.bias",)


def test_golden_data_of_an_older_version_has_no_hashes(tmp_path: Path) -> None:
    weights = golden_in(tmp_path, with_weights=False)
    golden = load_golden(tmp_path)
    older = msgspec.structs.replace(golden.data, weights=msgspec.structs.replace(golden.data.weights, hashes={}))
    save_golden(tmp_path, type(golden)(data=older, tensors=golden.tensors))

    assert checks(with_weights(tmp_path, weights))["weights"].same is None


def test_other_inputs_are_named_first(tmp_path: Path) -> None:
    golden_in(tmp_path)

    found = compare(tmp_path, outputs(tmp_path) | {"inputs/x": X + 1})

    assert checks(found)["inputs"].detail == "the port ran on other inputs: inputs/x"
    assert found.next_step.startswith("the port ran on other inputs")


@pytest.mark.parametrize(
    ("stated", "aspect", "same", "words"),
    [
        ({"training": True}, "mode", False, "the port ran in training mode, the reference in eval mode"),
        ({"training": False}, "mode", True, "eval mode"),
        ({"dtype": "ttnn.bfloat16"}, "dtype", False, "bfloat16 in the port, float32 in the reference"),
        ({"dtype": "torch.float32"}, "dtype", True, "float32"),
        ({"seed": 5}, "seed", False, "5 in the port, 0 in the reference"),
        ({"versions": {"torch": "0.1"}}, "versions", False, "torch 0.1, not "),
        ({"versions": {"ttnn": "0.81"}}, "versions", None, "does not give versions"),
        ({"inputs": {"x": "00"}}, "inputs", False, "the port ran on other inputs: inputs/x"),
        ({"inputs": {"x": sha256(X.numpy().tobytes()).hexdigest()}}, "inputs", True, "1 have the golden values"),
    ],
)
def test_each_aspect_that_a_port_states_is_compared(
    stated: dict[str, object],
    aspect: str,
    same: bool | None,  # noqa: FBT001 - a case
    words: str,
    tmp_path: Path,
) -> None:
    golden_in(tmp_path)
    (tmp_path / "port").mkdir()
    save_file(outputs(tmp_path), tmp_path / "port" / "a.safetensors")
    (tmp_path / "port" / "setup.json").write_text(json.dumps(stated))

    found = checks(compare(tmp_path, tmp_path / "port"))[aspect]

    assert found.same is same
    assert words in found.detail


@pytest.mark.parametrize("text", ["", "[]", '{"dtyp": "float32"}', '{"seed": "x"}'])
def test_a_setup_that_cannot_be_read_is_refused_with_its_keys(text: str, tmp_path: Path) -> None:
    golden_in(tmp_path)
    save_file(outputs(tmp_path), tmp_path / "port.safetensors")
    (tmp_path / "setup.json").write_text(text)

    with pytest.raises(UnreadableFileError, match=r"setup\.json cannot be read as the set-up .* dtype, training"):
        compare(tmp_path, tmp_path / "port.safetensors")
