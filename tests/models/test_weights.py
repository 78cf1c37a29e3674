import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertModel

from tests.models.hub import COMMIT, serving
from tests.models.trained import SHA256, TENSORS, trained_model
from torchstone.errors import InputError, ModelError, UnknownModelError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load, load_with_source
from torchstone.models.pretrained import find_blueprint
from torchstone.models.weight_files import hash_files, weight_files
from torchstone.record.reference import WeightsKind, WeightsSource
from torchstone.reference.golden_files import weights_of

PRETRAINED = InputOptions(pretrained=True)
SMALL = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 50}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with a small BertModel, as save_pretrained writes it."""
    torch.manual_seed(1)
    BertModel(BertConfig(**SMALL)).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def source_of(name: str | Path, options: InputOptions = PRETRAINED) -> WeightsSource:
    found = load_with_source(str(name), options=options, device="cpu").weights
    assert found is not None
    return found


def test_trained_weights_are_those_of_the_file_and_its_hash_is_recorded() -> None:
    model, _, source = load_with_source(str(trained_model()), options=PRETRAINED, device="cpu")
    in_file = load_file(trained_model() / "model.safetensors")

    assert source is not None
    assert source.kind is WeightsKind.PRETRAINED
    assert source.files == {"model.safetensors": SHA256}
    parameters = dict(model.named_parameters())
    equal = [name for name, value in parameters.items() if torch.equal(value, in_file[name])]
    assert len(equal) == len(parameters) == TENSORS


def test_a_model_without_weights_is_random_and_says_so() -> None:
    for name in ("tiny:bert", "tiny:vit"):
        source = source_of(name, InputOptions())
        assert source.kind is WeightsKind.RANDOM
        assert source.banner.startswith("random weights: ")


def test_tensors_that_no_file_has_are_random_and_named(small: Path) -> None:
    config = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))

    source = source_of(small)

    assert source.kind is WeightsKind.PARTLY_RANDOM
    assert "cls.predictions.transform.dense.weight" in source.drawn
    assert set(source.unused) == {"pooler.dense.bias", "pooler.dense.weight"}
    assert source.banner.startswith(f"random weights in {len(source.drawn)} tensors that no weight file has (cls.")


def test_layers_keep_the_first_trained_layers(small: Path) -> None:
    model, _, source = load_with_source(str(small), options=InputOptions(pretrained=True, layers=1), device="cpu")
    whole = load_file(small / "model.safetensors")

    assert source is not None
    assert source.kind is WeightsKind.PRETRAINED
    assert all(name.startswith("encoder.layer.1.") for name in source.unused)
    assert all(torch.equal(value, whole[name]) for name, value in model.named_parameters())


def test_layers_without_the_option_stay_random(small: Path) -> None:
    assert source_of(small, InputOptions(layers=1)).kind is WeightsKind.RANDOM
    assert source_of(small, InputOptions()).kind is WeightsKind.PRETRAINED


def test_on_meta_no_weights_are_read(small: Path) -> None:
    (small / "model.safetensors").write_bytes(b"damaged")

    assert load_with_source(str(small), options=PRETRAINED).weights is None
    with pytest.raises(ModelError, match="cannot be built as BertModel"):
        load(str(small), options=PRETRAINED, device="cpu")


def test_shards_are_hashed_one_by_one(small: Path) -> None:
    BertModel.from_pretrained(small).save_pretrained(small, max_shard_size="1KB")
    (small / "model.safetensors").unlink(missing_ok=True)
    shards = weight_files(small)

    assert len(shards) > 1
    assert source_of(small).files == hash_files(shards)
    shards[0].unlink()
    with pytest.raises(UnreadableFileError, match=f"names {shards[0].name}, which is missing"):
        source_of(small)


class _Planted:
    """Unpickled by anything but a weights_only reader, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def test_no_pickle_runs_code(small: Path, tmp_path: Path) -> None:
    state = load_file(small / "model.safetensors")
    torch.save({**state, "planted": _Planted(tmp_path / "ran")}, small / "pytorch_model.bin")
    (small / "pickled.pkl").write_bytes(pickle.dumps(_Planted(tmp_path / "ran")))

    assert source_of(small).files.keys() == {"model.safetensors"}  # safetensors have priority
    (small / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be built as BertModel"):
        source_of(small)
    assert not (tmp_path / "ran").exists()


def test_a_pickle_of_plain_tensors_is_read(small: Path) -> None:
    state = load_file(small / "model.safetensors")
    (small / "model.safetensors").unlink()
    torch.save(state, small / "pytorch_model.bin")

    model, _, source = load_with_source(str(small), options=PRETRAINED, device="cpu")

    assert source is not None
    assert source.kind is WeightsKind.PRETRAINED
    assert all(torch.equal(value, state[name]) for name, value in model.named_parameters())


def test_code_from_the_repository_is_refused(small: Path, tmp_path: Path) -> None:
    (small / "own.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    config = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "own.Model"}}))

    with pytest.raises(
        InputError, match=r"asks for Python code .*auto_map: .*own\.Model.*does not run; remove auto_map"
    ):
        source_of(small)
    assert not (tmp_path / "ran").exists()


def test_a_pointer_of_git_lfs_is_named(small: Path) -> None:
    (small / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")

    with pytest.raises(UnreadableFileError, match="is a Git LFS pointer, not the weights; run `git lfs pull`"):
        source_of(small)


def test_a_folder_without_weights_is_refused(small: Path) -> None:
    (small / "model.safetensors").unlink()

    with pytest.raises(ModelError, match=r"has no model\.safetensors or pytorch_model\.bin; add the weights, or drop"):
        source_of(small)
    assert source_of(small, InputOptions()).kind is WeightsKind.RANDOM


def test_weights_of_another_width_are_refused(small: Path) -> None:
    state = load_file(small / "model.safetensors")
    save_file({name: torch.zeros(3, 3) for name in state}, small / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelError, match="cannot be built as BertModel"):
        source_of(small)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tiny:bert", {"pretrained": True}, "tiny:bert has no weight files; drop --pretrained"),
        (
            "gpt2",
            {"pretrained": True},
            r"gpt2 has no weights in the Hugging Face cache .*; give a local folder .*--download",
        ),
        ("no/such", {"pretrained": True, "revision": "v2"}, "no/such at revision v2 has no weights in the Hugging"),
        ("a b", {"pretrained": True}, "'a b' is neither a folder nor a model id"),
        ("no/such", {}, "--pretrained finds models in the Hugging Face cache"),
    ],
)
def test_a_model_that_is_not_there_gives_the_way_out(
    name: str, options: dict[str, bool | str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(InputError, match=message):
        load(name, options=InputOptions(**options), device="cpu")  # type: ignore[arg-type]  # as parametrized


def test_options_of_the_hub_need_a_model_of_the_hub(small: Path) -> None:
    with pytest.raises(InputError, match="local path, to which --revision and --download do not apply"):
        find_blueprint(str(small), InputOptions(pretrained=True, revision="main"))
    with pytest.raises(InputError, match="--download applies only to pretrained weights; add --pretrained"):
        InputOptions(download=True)


def test_other_models_set_their_own_weights(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import torch\ndef load_model(): return torch.nn.Linear(2, 2)\n")
    name = f"{tmp_path / 'net.py'}::load_model"

    source = source_of(name, InputOptions())
    assert (source.kind, source.location) == (WeightsKind.CODE, name)
    assert "cannot tell whether they are trained" in source.banner
    with pytest.raises(InputError, match="--pretrained applies only to models that transformers builds"):
        load(name, options=PRETRAINED)
    live = load_with_source(torch.nn.Linear(2, 2))
    assert live.weights is not None
    assert live.weights.kind is WeightsKind.MEMORY


_ASK_THE_HUB = """
import sys
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load_with_source
options = InputOptions(pretrained=True, download=sys.argv[1] == "download")
source = load_with_source("org/model", options=options, device="cpu").weights
print(source.banner, source.revision)
"""


def ask_the_hub(how: str, endpoint: str, home: Path) -> str:
    """What a fresh process prints: the hub's address and cache are read when its package is imported."""
    environment = {"PATH": "", "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK_THE_HUB, how], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]


def test_the_network_is_used_only_on_request_and_brings_no_code(small: Path, tmp_path: Path) -> None:
    (small / "own.py").write_text("raise SystemExit")
    (small / "pytorch_model.bin").write_bytes(b"a pickle")
    (small / "onnx").mkdir()
    (small / "onnx" / "config.json").write_text("{}")
    home = tmp_path / "home"
    with serving(small) as (endpoint, requests):
        refused = ask_the_hub("cache", endpoint, home)
        assert "org/model has no weights in the Hugging Face cache" in refused
        assert requests == []

        expected = f"pretrained weights: model.safetensors of org/model at revision {COMMIT[:12]} {COMMIT}\n"
        assert ask_the_hub("download", endpoint, home) == expected
        fetched = {path.rpartition("/")[2] for path in requests if "/resolve/" in path}
        assert fetched == {"config.json", "model.safetensors"}

        asked = len(requests)
        assert ask_the_hub("cache", endpoint, home) == expected
        assert len(requests) == asked  # from the cache
    shutil.rmtree(home)
    assert "org/model cannot be downloaded: " in ask_the_hub("download", "http://127.0.0.1:9", home)


def test_an_unknown_hub_model_is_an_unknown_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModelError):
        find_blueprint("no/such", PRETRAINED)


def test_tied_tensors_are_not_counted_as_random(small: Path) -> None:
    model = BertForMaskedLM(BertConfig(**SMALL))
    model.save_pretrained(small)

    assert source_of(small).kind is WeightsKind.PRETRAINED


@pytest.mark.parametrize("model_type", ["gpt2", "t5", "mixtral", "mamba2", "wav2vec2", "clip"])
def test_every_tensor_of_a_saved_model_comes_back(model_type: str, tmp_path: Path) -> None:
    saved = load(f"tiny:{model_type}", options=InputOptions(seed=7), device="cpu").model
    saved.save_pretrained(tmp_path)  # type: ignore[operator]  # a model of transformers

    model, _, source = load_with_source(str(tmp_path), options=PRETRAINED, device="cpu")

    assert source is not None
    assert (source.kind, source.drawn, source.unused) == (WeightsKind.PRETRAINED, (), ())
    assert weights_of(model).sha256 == weights_of(saved).sha256
