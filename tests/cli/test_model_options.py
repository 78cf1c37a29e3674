import click
import pytest

from torchstone.cli.main import run
from torchstone.cli.model_options import ModelRequest, model_options
from torchstone.cli.options import common_options
from torchstone.errors import EXIT_BAD_INPUT, EXIT_FINE


def request_of(*arguments: str) -> ModelRequest:
    """What a command gets for a command line."""
    seen: list[ModelRequest] = []

    @click.command()
    @model_options
    @common_options
    def command(request: ModelRequest) -> None:
        seen.append(request)

    assert run(list(arguments), program=command) == EXIT_FINE
    return seen[0]


def test_a_model_alone_leaves_everything_to_torchstone() -> None:
    request = request_of("gpt2")

    assert (request.model, request.inputs, request.mode, request.reuse, request.backward) == (
        "gpt2", None, "auto", True, False,
    )  # fmt: skip
    assert (request.options.batch_size, request.options.seed) == (None, 0)


def test_a_model_id_is_a_model() -> None:
    assert request_of("--model-id", "gpt2") == request_of("gpt2")


def test_every_option_arrives() -> None:
    request = request_of(
        "net.py::f", "--inputs", "net.py::g", "--batch-size", "2", "--seq-len", "3", "--image-size", "4", "--phase",
        "decode", "--cache-len", "5", "--dtype", "bfloat16", "--layers", "6", "--seed", "7", "--mode", "fake",
        "--no-reuse", "--backward",
    )  # fmt: skip
    options = request.options

    assert (request.inputs, request.mode, request.reuse, request.backward) == ("net.py::g", "fake", False, True)
    assert (options.batch_size, options.seq_len, options.image_size) == (2, 3, 4)
    assert (options.phase, options.cache_len, options.dtype) == ("decode", 5, "bfloat16")
    assert (options.layers, options.seed) == (6, 7)


@pytest.mark.parametrize("arguments", [(), ("gpt2", "--model-id", "gpt2")], ids=["none", "both"])
def test_one_model_is_wanted_not_none_and_not_two(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", *arguments]) == EXIT_BAD_INPUT
    assert "give one MODEL, as an argument or with --model-id" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [("--batch-size", "0"), ("--mode", "gpu"), ("--phase", "train"), ("--seq-len", "many")], ids=" ".join
)
def test_a_value_that_makes_no_sense_is_refused_before_anything_is_loaded(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "gpt2", *arguments]) == EXIT_BAD_INPUT
    assert arguments[0] in capsys.readouterr().err
