import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchstone import models
from torchstone.errors import (
    InputError,
    MissingExtraError,
    ModelError,
    ModelInputsError,
    UnknownModelError,
    UnreadableFileError,
)
from torchstone.models import load_model
from torchstone.models.load_model import InputOptions, describe_source, load

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
    def forward(self, x, y=None):
        return self.fc(x)

def load_model(): return Net()
def with_inputs(): return Net(), torch.ones(3, 4)
def number(): return 3

class ModelLoader:
    def load_model(self): return Net()
    def load_inputs(self): return {"x": torch.zeros(5, 4)}
"""
GET_INPUTS = "def get_inputs(): return torch.ones(1, 4)\n"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    file = tmp_path / "ts_loading_net.py"
    file.write_text(NET)
    return file


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 3,
                "vocab_size": 99,
            }
            | {"num_attention_heads": 4, "num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]}
        )
    )
    return file


def test_a_pair_from_the_function_is_model_and_inputs(net: Path) -> None:
    model, inputs = load(f"{net}::with_inputs")
    assert model(*inputs.args).shape == (3, 2)
    assert inputs.origin == f"{net}::with_inputs"


def test_get_inputs_beside_the_model_is_used_and_said(net: Path) -> None:
    net.write_text(NET + GET_INPUTS)
    assert load(f"{net}::load_model").inputs.origin == f"{net}::get_inputs"


def test_given_inputs_win_and_the_file_runs_once(net: Path) -> None:
    net.write_text(
        "RUNS = []\nRUNS.append(1)\n" + NET + GET_INPUTS + "def others(): return torch.ones(len(RUNS), 4), {}\n"
    )
    model, inputs = load(f"{net}::load_model", inputs=f"{net}::others")
    assert inputs.origin == f"{net}::others"
    assert inputs.args[0].shape == (1, 4)
    assert type(model) is sys.modules[type(model).__module__].Net


def test_inputs_may_be_python_values(net: Path) -> None:
    assert load(f"{net}::load_model", inputs=torch.ones(2, 4)).inputs.args[0].shape == (2, 4)


def test_options_that_given_inputs_do_not_follow_are_said(net: Path) -> None:
    notes = load(f"{net}::load_model", inputs=torch.ones(2, 4), options=InputOptions(batch_size=8)).inputs.notes
    assert notes == ("batch_size: not applied, the inputs come from the given inputs",)
    assert "not applied" not in str(load("tiny:bert", options=InputOptions(batch_size=8)).inputs.notes)


@pytest.mark.parametrize(
    ("model", "options", "unused"),
    [
        ("tiny:llama", InputOptions(seq_len=8, image_size=32), ["image_size"]),
        ("tiny:llama", InputOptions(seq_len=8, phase="decode", cache_len=4), ["seq_len"]),
        ("tiny:t5", InputOptions(seq_len=8, phase="decode", cache_len=4), []),
        ("tiny:vit", InputOptions(seq_len=8, image_size=64), ["seq_len"]),
        ("tiny:llava", InputOptions(seq_len=8, image_size=56), []),
    ],
)
def test_sizes_that_no_generated_input_has_are_said(model: str, options: InputOptions, unused: list[str]) -> None:
    notes = load(model, options=options).inputs.notes
    assert [note.partition(":")[0] for note in notes if "not applied" in note] == unused


def test_layers_of_a_model_of_ones_own_are_not_limited(net: Path) -> None:
    with pytest.raises(InputError, match="--layers applies only to models that transformers builds, not to"):
        load(f"{net}::load_model", options=InputOptions(layers=1))


def test_a_model_loader_brings_its_inputs(net: Path) -> None:
    model, inputs = load(f"{net}::ModelLoader")
    assert model(**inputs.kwargs).shape == (5, 2)
    assert inputs.origin == f"{net}::ModelLoader.load_inputs"


def test_a_file_alone_means_its_load_model(net: Path) -> None:
    assert type(load(str(net)).model).__name__ == "Net"


def test_a_class_is_a_factory_too() -> None:
    assert isinstance(load("torch.nn:Identity", inputs=torch.ones(1)).model, nn.Identity)


def test_a_module_is_taken_as_it_is() -> None:
    module = nn.Linear(3, 3)
    assert load(module).model is module


@pytest.mark.parametrize("returned", ["Broken.__new__(Broken)", "(Broken.__new__(Broken), (torch.ones(1),))"])
def test_a_module_that_cannot_list_its_parameters_is_named(tmp_path: Path, returned: str) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\n"
        "class Broken(torch.nn.Module):\n"
        "    def __getattr__(self, name):\n"
        "        raise RuntimeError('no ' + name)\n"
        f"def load_model():\n    return {returned}\n"
    )

    with pytest.raises(ModelError, match=r"the parameters of what load_model in .* returned cannot be listed: no _"):
        load(f"{file}::load_model")


def test_what_is_no_module_is_refused(net: Path) -> None:
    with pytest.raises(ModelError, match=r"number in .* returned int, not a torch\.nn\.Module"):
        load(f"{net}::number")


def test_a_plain_function_takes_no_variant(net: Path) -> None:
    with pytest.raises(ModelError, match=r"load_model in .* has no variants: \[base\]"):
        load(f"{net}::load_model[base]")


def test_inputs_of_a_wrong_type_are_refused(net: Path) -> None:
    with pytest.raises(ModelInputsError, match=r"::number: an int cannot be used as model inputs"):
        load(f"{net}::load_model", inputs=f"{net}::number")


def test_an_unknown_id_suggests_near_ones_and_the_way_out() -> None:
    with pytest.raises(
        UnknownModelError, match=r"did you mean meta-llama/Llama-2-7b-hf .*config\.json; `torchstone models`"
    ):
        load("meta-llama/Llama-2-7b")


def test_a_config_file_and_its_folder_build_the_same_model_on_meta(config_file: Path) -> None:
    for name in (config_file, config_file.parent):
        model, inputs = load(str(name))
        assert type(model).__name__ == "LlamaForCausalLM"
        assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
        assert int(inputs.kwargs["input_ids"].max()) < 99
        assert not model.training


def test_a_model_on_cpu_has_the_same_weights_twice(config_file: Path) -> None:
    first, again = (load(str(config_file), device="cpu").model.state_dict() for _ in range(2))
    other = load(str(config_file), device="cpu", options=InputOptions(seed=1)).model.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_weights_in_a_folder_are_used_on_cpu(config_file: Path) -> None:
    saved = load(str(config_file), device="cpu", options=InputOptions(seed=5)).model
    saved.save_pretrained(config_file.parent)  # type: ignore[operator]
    loaded = load(str(config_file.parent), device="cpu").model
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in saved.state_dict().items())


def test_dtype_casts_weights_and_float_inputs_only() -> None:
    model, inputs = load("tiny:whisper", device="cpu", options=InputOptions(dtype="bfloat16"))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert inputs.kwargs["input_features"].dtype is torch.bfloat16
    assert inputs.kwargs["decoder_input_ids"].dtype is torch.int64


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not valid JSON"),
        ("[]", "it contains list"),
        ("{}", "has no model_type"),
        ('{"schema": "torchstone/cost/1"}', "is a result .torchstone/cost/1., not a model; give the model itself"),
        ('{"model_type": "llama", "hidden_size": "big"}', "is not a valid llama configuration: .*hidden_size"),
    ],
)
def test_an_unreadable_config_says_what_is_wrong(config_file: Path, content: str, expected: str) -> None:
    config_file.write_text(content)
    with pytest.raises(UnreadableFileError, match=rf"config\.json.*{expected}"):
        load(str(config_file))


@pytest.mark.parametrize("name", ["notes.txt", "model.safetensors", "weights.bin", "gpt2"])
def test_a_file_that_is_not_a_model_is_refused_with_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("hello")
    with pytest.raises(UnknownModelError, match=rf"{name} is not a file that a model is loaded from; .*load_model"):
        load(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFileError, match="is not a regular file"):
        load(str(tmp_path / "pipe"))


@pytest.mark.parametrize("name", ["", "tiny:"])
def test_an_empty_name_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(UnknownModelError, match=r"is not a model name; .* such as gpt2, tiny:bert"):
        load(name)


def test_an_unknown_model_type_suggests_near_ones() -> None:
    with pytest.raises(UnknownModelError, match=r"no model type 'lama'; did you mean .*llama"):
        load("tiny:lama")


@pytest.mark.parametrize(("absent", "name", "extra"), [("torch", "tiny:bert", "torch"), ("transformers", "gpt2", "hf")])
def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, absent: str, name: str, extra: str) -> None:
    monkeypatch.setattr(load_model, "find_spec", lambda module: None if module == absent else object())
    with pytest.raises(MissingExtraError, match=rf"torchstone\[{extra}\]"):
        load(name)


def test_the_name_in_provenance_is_the_full_id() -> None:
    assert describe_source("gpt2") == "openai-community/gpt2"
    assert describe_source("net.py::load_model") == "net.py::load_model"
    assert describe_source(nn.Linear(1, 1)) == "torch.nn.modules.linear.Linear"


def test_importing_the_loader_imports_no_torch() -> None:
    program = "import sys, torchstone.models.load_model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_package_offers_load() -> None:
    assert models.load is load
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = models.lode
