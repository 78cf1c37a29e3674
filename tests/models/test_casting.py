import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from torchstone.errors import InputError
from torchstone.models import load
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.prepare import cast_inputs, cast_model, parse_dtype
from torchstone.models.tiny import tiny_config


@pytest.mark.parametrize("name", ["bfloat16", "torch.bfloat16"])
def test_a_dtype_is_read_with_or_without_its_package(name: str) -> None:
    assert parse_dtype(name) is torch.bfloat16


@pytest.mark.parametrize("name", ["int64", "nn", "bf17"])
def test_what_is_no_floating_point_dtype_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"the dtype '{name}' is not a floating-point dtype"):
        parse_dtype(name)


def test_parameters_and_float_buffers_are_cast_and_others_stay() -> None:
    model = nn.BatchNorm1d(2)
    cast_model(model, torch.float16)
    assert {name: value.dtype for name, value in model.state_dict().items()} == {
        "weight": torch.float16,
        "bias": torch.float16,
        "running_mean": torch.float16,
        "running_var": torch.float16,
        "num_batches_tracked": torch.int64,
    }


def test_float_inputs_are_cast_however_deep_and_others_stay() -> None:
    inputs = Inputs(args=((torch.ones(1), torch.ones(1, dtype=torch.int64)),), kwargs={"flag": True}, origin="here")
    cast = cast_inputs(inputs, torch.float16)
    assert [tensor.dtype for tensor in cast.args[0]] == [torch.float16, torch.int64]
    assert cast.kwargs == {"flag": True}


def test_no_dtype_changes_nothing() -> None:
    inputs = Inputs(args=(torch.ones(1),), origin="here")
    model = nn.Linear(1, 1)
    cast_model(model, parse_dtype(None))
    assert cast_inputs(inputs, parse_dtype(None)) is inputs
    assert model.weight.dtype is torch.float32


def test_tables_of_a_transformers_model_keep_their_precision_as_from_pretrained_keeps_it() -> None:
    model, _ = load("tiny:llama", options=InputOptions(dtype="bfloat16"), device="cpu")
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
    tables = {name: table for name, table in model.named_buffers() if "inv_freq" in name}
    assert tables
    expected = 1.0 / 10000.0 ** (torch.arange(0, 16, 2) / 16)
    for table in tables.values():
        assert table.dtype is torch.float32
        assert torch.allclose(table, expected)


def test_a_configuration_is_built_in_its_dtype_whatever_its_first_parameter_has(tmp_path: Path) -> None:
    config = tiny_config(CONFIG_MAPPING["xlnet"]).to_dict() | {"dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model, _ = load(str(tmp_path), options=InputOptions(seq_len=5))
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
