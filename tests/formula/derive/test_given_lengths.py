import pytest

from torchstone.capture import capture
from torchstone.formula.derive.parameter_binding import lengths_of
from torchstone.models import load
from torchstone.models.inputs import InputOptions


def given(model: str, **asked: int | str) -> dict[str, int]:
    loaded, inputs = load(model, options=InputOptions(**asked))  # type: ignore[arg-type]  # each has its own type
    return lengths_of(capture(loaded, inputs).module_calls[0])


def test_a_prompt_alone_needs_no_further_length() -> None:
    assert given("tiny:llama", seq_len=7) == {}


@pytest.mark.parametrize("model", ["tiny:llama", "tiny:gpt2"])
def test_the_tokens_in_a_cache_are_counted(model: str) -> None:
    assert given(model, phase="decode", cache_len=19) == {"cache_len": 19}


def test_a_cache_that_forgets_still_knows_how_much_it_saw() -> None:
    assert given("mistralai/Mistral-7B-v0.1", phase="decode", cache_len=5000, layers=1) == {"cache_len": 5000}


def test_encoder_and_decoder_have_lengths_of_their_own() -> None:
    assert given("tiny:t5", seq_len=9)["S_encoder"] == 9
    assert given("tiny:t5", seq_len=9, phase="decode", cache_len=5) == {"S_encoder": 9, "S_decoder": 1, "cache_len": 5}
