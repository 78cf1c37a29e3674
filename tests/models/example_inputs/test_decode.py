from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.capture import capture
from torchstone.cost import price
from torchstone.errors import ModelInputsError
from torchstone.models.example_inputs.context import InputBuilder, InputContext
from torchstone.models.example_inputs.decode import _prefill_arguments
from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load

DECODE = InputOptions(phase="decode", cache_len=11, batch_size=2)
SOUND = "encoder_inputs_embeds"


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba2", "jamba", "t5", "whisper", "deepseek_v3", "llava"])
def test_a_decode_step_runs_on_its_cache(name: str) -> None:
    model, inputs = load(f"tiny:{name}", device="cpu", options=DECODE)
    ids = inputs.kwargs.get("decoder_input_ids", inputs.kwargs.get("input_ids"))
    with torch.no_grad():
        output = model(**inputs.kwargs)
    assert ids is not None
    assert ids.shape == (2, 1)
    assert output.logits.shape[:2] == (2, 1)
    assert inputs.phase == "decode"
    assert any("filled with 11 tokens" in note for note in inputs.notes)


ENCODER_DECODERS = ["bart", "m2m_100", "led", "bigbird_pegasus", "t5gemma", "musicgen", "florence2"]


@pytest.mark.parametrize("name", [*ENCODER_DECODERS, "moshi", "minimax", "recurrent_gemma"])
def test_a_cache_made_without_values_looks_like_one_made_with_values(name: str) -> None:
    """Masks and checks that read values back do not change what a model keeps."""
    real, bare = (load(f"tiny:{name}", device=device, options=DECODE).inputs for device in ("cpu", "meta"))
    first, second = (one.kwargs["past_key_values"] for one in (real, bare))
    assert _shapes(first) == _shapes(second)
    assert any(11 in shape for shape in _shapes(first))


def _shapes(holder: object) -> list[torch.Size]:
    if isinstance(holder, torch.Tensor):
        return [holder.shape]
    parts = holder if isinstance(holder, list | tuple) else vars(holder).values() if hasattr(holder, "__dict__") else ()
    return [shape for part in parts if not isinstance(part, type) for shape in _shapes(part)]


@pytest.mark.parametrize(
    ("name", "cached"), [("bart", 11), ("recurrent_gemma", 11), ("musicgen", 11), ("moshi_depth", 5)]
)
def test_a_step_of_any_decoder_gives_what_the_whole_sequence_gives(name: str, cached: int) -> None:
    options = InputOptions(phase="decode", cache_len=cached, batch_size=2)
    model, inputs = load(f"tiny:{name}", device="cpu", options=options)
    ids = "decoder_input_ids" if "decoder_input_ids" in inputs.kwargs else "input_ids"
    with torch.no_grad():
        actual = model(**inputs.kwargs).logits[:, -1]
    again, prefill = load(f"tiny:{name}", device="cpu", options=InputOptions(batch_size=2))
    context = InputContext(model=again, config=again.config, options=options, builder=InputBuilder(0))
    arguments: dict[str, Any] = {**_prefill_arguments(prefill, context, ids, cached), "use_cache": False}
    arguments[ids] = torch.cat([arguments[ids], inputs.kwargs[ids]], dim=1)
    with torch.no_grad():
        expected = again(**arguments).logits[:, -1]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=5e-6 * float(expected.abs().max()))


def test_a_step_after_a_cache_gives_what_the_whole_sequence_gives() -> None:
    model, inputs = load("tiny:llama", device="cpu", options=DECODE)
    _, prefill = load("tiny:llama", device="cpu", options=InputOptions(seq_len=11, batch_size=2))
    whole = torch.cat([prefill.kwargs["input_ids"], inputs.kwargs["input_ids"]], dim=1)
    with torch.no_grad():
        expected = model(input_ids=whole).logits[:, -1]
        actual = model(**inputs.kwargs).logits[:, -1]
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_the_cache_lives_where_the_model_lives_in_its_dtype(dtype: str | None) -> None:
    options = InputOptions(phase="decode", cache_len=5, dtype=dtype, layers=2)
    model, inputs = load("meta-llama/Llama-3.1-405B", options=options)
    keys = inputs.kwargs["past_key_values"].layers[1].keys
    assert keys.device.type == "meta"
    assert keys.shape == (1, 8, 5, 128)
    assert keys.dtype is next(model.parameters()).dtype
    assert inputs.kwargs["position_ids"].tolist() == [[5]]
    assert inputs.kwargs["attention_mask"].shape == (1, 6)


def test_a_sliding_layer_keeps_only_its_window() -> None:
    options = InputOptions(phase="decode", cache_len=500, layers=2)
    cache = load("openai/gpt-oss-20b", options=options).inputs.kwargs["past_key_values"]
    assert [layer.keys.shape[-2] for layer in cache.layers] == [127, 500]


def test_a_model_without_a_cache_has_no_decode_phase() -> None:
    with pytest.raises(ModelInputsError, match=r"BertForMaskedLM .*no decode phase.*drop --phase"):
        load("tiny:bert", device="cpu", options=DECODE)
    with pytest.raises(ModelInputsError, match="ResNetForImageClassification has no decode phase"):
        load("tiny:resnet", device="cpu", options=DECODE)


def test_a_model_that_hears_while_it_writes_gets_the_sound_of_the_new_token() -> None:
    """Voxtral Realtime: a step with both caches gives what all tokens and all sound give at once."""
    model, inputs = load("tiny:voxtral_realtime", device="cpu", options=DECODE)
    context = InputContext(model=model, config=model.config, options=DECODE, builder=InputBuilder(0))
    before: dict[str, Any] = _prefill_arguments(inputs, context, "input_ids", 11)
    whole = {name: torch.cat([before[name], inputs.kwargs[name]], dim=1) for name in ("input_ids", SOUND)}
    with torch.no_grad():
        expected = model(**whole, use_cache=False).logits[:, -1]
        actual = model(**inputs.kwargs).logits[:, -1]
    torch.testing.assert_close(actual, expected)


def test_the_cache_of_sound_counts() -> None:
    options = InputOptions(phase="decode", cache_len=11, batch_size=2)
    model, inputs = load("tiny:voxtral_realtime", options=options)
    cache = price(capture(model, inputs)).cache
    assert cache is not None
    config: Any = model.config
    expected = 0
    for part, tokens in ((config.text_config, 11), (config.audio_config, 11 * config.downsample_factor)):
        head = getattr(part, "head_dim", None) or part.hidden_size // part.num_attention_heads
        heads = getattr(part, "num_key_value_heads", None) or part.num_attention_heads
        expected += part.num_hidden_layers * 2 * heads * head * tokens * 2 * 4
    assert cache.size_bytes == expected


@pytest.mark.parametrize("name", ["dia", "pp_formulanet"])
def test_a_step_runs_on_real_tensors(name: str) -> None:
    model, inputs = load(f"tiny:{name}", device="cpu", options=DECODE)
    with torch.no_grad():
        output = model(**inputs.kwargs)
    assert output.logits.isfinite().all()


@pytest.mark.parametrize(("name", "part"), [("blip", "text_decoder"), ("kosmos-2", "text_model")])
def test_a_part_that_generates_by_itself_is_named(name: str, part: str) -> None:
    """Their own generate calls that of the part, with its cache."""
    with pytest.raises(ModelInputsError, match=rf"its {part} generates, a \w+ of type \w+; give .* or drop --phase"):
        load(f"tiny:{name}", options=DECODE)


@pytest.mark.parametrize("resamples", [False, True])
def test_idefics_attends_to_the_images_of_its_prompt_as_it_does_when_it_generates(
    tmp_path: Path, *, resamples: bool
) -> None:
    config: Any = load("tiny:idefics").model.config
    config.use_resampler = resamples
    config.architectures = ["IdeficsForVisionText2Text"]
    config.save_pretrained(tmp_path)
    model: Any
    model, prompt = load(str(tmp_path), device="cpu", options=InputOptions(batch_size=2, seq_len=11))
    _, step = load(str(tmp_path), options=DECODE)

    calls: list[Any] = []
    model.register_forward_pre_hook(lambda _module, _args, given: calls.append(given), with_kwargs=True)
    model.generate(**prompt.kwargs, max_new_tokens=2, min_new_tokens=2, do_sample=False)

    shapes = {name: one.shape for name, one in calls[1].items() if isinstance(one, torch.Tensor)}
    shapes["attention_mask"] = torch.Size((2, 12))  # which `generate` drops where it hides nothing
    assert ("perceiver_embeddings" in shapes) is resamples
    assert shapes == {name: one.shape for name, one in step.kwargs.items() if isinstance(one, torch.Tensor)}
    table = price(capture(*load(str(tmp_path), options=DECODE)))
    assert table.cache is not None
    assert table.cache.size_bytes == config.num_hidden_layers * 2 * 2 * 11 * config.hidden_size * 4


def test_a_depth_decoder_has_a_token_for_each_codebook() -> None:
    model, inputs = load("tiny:moshi_depth", options=InputOptions(phase="decode", batch_size=3))
    config: Any = model.config
    books = config.num_codebooks
    assert "past_key_values: DynamicCache filled with 7 tokens" in inputs.notes
    cache = price(capture(model, inputs)).cache
    assert cache is not None
    assert cache.size_bytes == config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 7 * 3 * 4
    for options in (InputOptions(phase="decode", cache_len=books), InputOptions(seq_len=books + 1)):
        with pytest.raises(ModelInputsError, match=f"has {books} codebooks, one for each token; give --"):
            load("tiny:moshi_depth", options=options)
