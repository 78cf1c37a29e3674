"""Numbers that no machine can hold, in options and in configurations: one sentence, before memory is asked for."""

import json
from pathlib import Path

import pytest

from tests.report.traces import transformer
from torchstone.cli.main import run
from torchstone.cli.terminal import MAX_ERROR_CHARACTERS
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE
from torchstone.record import codec

LONG = "9" * 5_000  # more digits than Python converts to a number
TINY = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64,
    "num_attention_heads": 2, "num_key_value_heads": 2,
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    codec.save(Path("trace.json"), transformer(1))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = run(list(arguments))
    err = capsys.readouterr().err
    assert code == EXIT_BAD_INPUT, err
    assert len(err) < MAX_ERROR_CHARACTERS + 500
    return err


@pytest.mark.torch
@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("tiny:gpt2", "--batch-size 99999999999", "the input input_ids of [99999999999, 128] takes 93.1 TiB"),
        ("tiny:gpt2", f"--batch-size {10**30}", "the input input_ids"),
        ("tiny:gpt2", "--seq-len 5000000000000", "the input input_ids of [1, 5000000000000] takes 36.4 TiB"),
        ("tiny:gpt2", "--phase decode --cache-len 99999999999999", "takes 728 TiB"),
        ("tiny:vit", "--image-size 4000000000", "the input pixel_values"),
        ("tiny:gpt2", f"--seed {10**30}", "a seed is a number of 64 bits"),
    ],
)
def test_inputs_that_no_memory_holds_are_refused(
    capsys: pytest.CaptureFixture[str], model: str, options: str, said: str
) -> None:
    assert said in refused(capsys, "inspect", model, *options.split(), "--no-cache")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_labels": 10**9}, "at most 1,000,000 are built"),
        ({"model_type": "resnet", "num_channels": 1 << 40}, "the input pixel_values of [1, 1099511627776, 224, 224]"),
        ({"model_type": "dac", "n_codebooks": 10**7}, "has more than 2,000 modules and parameters"),
    ],
)
def test_counts_in_a_configuration_that_take_all_memory_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], said: str
) -> None:
    from torchstone.models import pretrained

    monkeypatch.setattr(pretrained, "_MOST_REGISTERED", 2_000)
    Path("config.json").write_text(json.dumps({**TINY, **changes}), encoding="utf-8")

    assert said in refused(capsys, "inspect", "config.json", "--no-cache")


@pytest.mark.parametrize(
    "command",
    [
        f"cost . --tp {10**400}",
        f"cost . --tp {LONG}",
        f"check . --backend eager --memory-limit {10**400}",
        f"check . --backend eager --memory-limit {LONG}",
        f"memory check . --max-dram {LONG}",
        "memory check . --max-dram 1e60",
        f"formula solve torch.nn.Linear input_features=4 output_features=4 --for batch_elements --flops {LONG}",
        f"cost . --tp {'x' * 100_000}",
        f"inspect . --depth {'x' * 100_000}",
        f"cost . --count {'x' * 100_000}",
    ],
)
def test_numbers_of_options_are_refused_in_a_few_lines(capsys: pytest.CaptureFixture[str], command: str) -> None:
    refused(capsys, *command.split())


@pytest.mark.parametrize("value", [LONG, "[" * 5_000, "{" * 5_000])
def test_an_option_of_a_backend_that_is_no_json_is_text(value: str) -> None:
    from torchstone.backends.registry import read_options

    assert read_options([f"fault={value}"]) == {"fault": value}


def test_as_many_devices_as_there_may_be_are_split_over() -> None:
    assert run(["cost", ".", "--tp", "1000000"]) == EXIT_FINE
