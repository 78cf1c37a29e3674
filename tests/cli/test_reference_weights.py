import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.cli.references import make_reference
from tests.models.trained import SHA256, hidden_states, similarity, trained_model
from torchstone.cli.main import run
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.workflows.reference import make_reference as make_reference_in_python

SENTENCES = ("A cat sleeps on the sofa.", "The kitten naps on the couch.", "Interest rates rose by half a percent.")


def reference_of(model: str, folder: Path, *options: str) -> int:
    return run(["reference", model, "--dir", str(folder), "--quiet", *options])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference of a trained model on three sentences."""
    folder = tmp_path_factory.mktemp("trained")
    texts = [part for sentence in SENTENCES for part in ("--text", sentence)]
    assert reference_of(str(trained_model()), folder, "--pretrained", *texts) == EXIT_FINE
    return folder


def test_golden_data_of_a_trained_model_means_something(trained: Path) -> None:
    golden = load_file(trained / "golden_data.safetensors")
    hidden, mask = golden["outputs/last_hidden_state"].astype(np.float64), golden["inputs/attention_mask"]

    cosines = similarity(hidden, mask)
    assert cosines[0, 1] > 0.6
    assert max(cosines[0, 2], cosines[1, 2]) < 0.2
    independent = hidden_states(golden["inputs/input_ids"], mask)
    assert np.abs(hidden - independent)[mask == 1].max() < 1e-4


def test_the_files_say_where_trained_weights_come_from(trained: Path) -> None:
    banner = f"pretrained weights: model.safetensors of {trained_model()}"
    golden = json.loads((trained / "golden_data.json").read_bytes())

    assert list(golden)[:2] == ["schema", "banner"]
    assert golden["banner"] == banner
    assert golden["weights"]["source"]["files"] == {"model.safetensors": SHA256}
    assert json.loads((trained / "checklist.json").read_bytes())["banner"] == banner
    assert (trained / "CHECKLIST.md").read_text(encoding="utf-8").splitlines()[0] == f"**{banner}**"


def test_a_trained_reference_can_be_verified(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reference", "verify", str(trained), "--quiet"]) == EXIT_FINE

    shown = capsys.readouterr().out
    assert "5 of 5 tensors are equal bit for bit" in shown
    assert "weights differ" not in shown


def test_random_weights_are_the_first_line_of_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reference_of("tiny:bert", tmp_path) == EXIT_FINE

    banner = (
        "random weights: the outputs can be reproduced, but they are not those of a trained model (see --pretrained)"
    )
    assert capsys.readouterr().out.splitlines()[0] == banner
    assert (tmp_path / "CHECKLIST.md").read_text(encoding="utf-8").splitlines()[0] == f"**{banner}**"
    golden = json.loads((tmp_path / "golden_data.json").read_bytes())
    assert golden["banner"] == banner
    assert golden["weights"]["source"]["kind"] == "random"


def test_weights_of_own_code_are_not_called_random(tmp_path: Path) -> None:
    folder = make_reference(tmp_path)

    golden = json.loads((folder / "golden_data.json").read_bytes())
    assert (
        golden["banner"]
        == f"weights set by {tmp_path / 'net.py'}::load_model: torchstone cannot tell whether they are trained"
    )


def test_a_model_that_is_not_on_this_machine_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    assert reference_of("bert-base-uncased", tmp_path / "out", "--pretrained") == EXIT_BAD_INPUT

    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "local folder" in error
    assert "--download" in error


def test_other_commands_take_real_inputs_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(trained_model()), "--pretrained", "--text", "a cat", "--json"]) == EXIT_FINE

    document = json.loads(capsys.readouterr().out)
    assert document["modules"][0]["inputs"] == [{"shape": [1, 4], "dtype": "int64"}] * 3


def test_python_takes_the_same_options(tmp_path: Path) -> None:
    from torchstone.models.inputs import InputOptions

    options = InputOptions(pretrained=True, text=("a cat",), layers=1)
    made = make_reference_in_python(str(trained_model()), None, tmp_path, options=options)

    assert made.complete
    assert made.golden is not None
    assert made.golden.data.weights.source is not None
    assert all("encoder.layer.0" not in name for name in made.golden.data.weights.source.unused)
