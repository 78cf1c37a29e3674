import json
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    BertTokenizer,
    CLIPConfig,
    CLIPModel,
    CLIPProcessor,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
    Wav2Vec2Model,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tests.models.trained import hidden_states, similarity, trained_model
from torchstone.errors import InputError, ModelInputsError, UnreadableFileError
from torchstone.models.example_inputs.processed import _read_audio, _read_image
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.load_model import Loaded, load

SENTENCES = ("A cat sleeps on the sofa.", "The kitten naps on the couch.", "Interest rates rose by half a percent.")
RATE = 16_000


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the trained model without its weights, whose files a test may change."""
    folder = tmp_path / "model"
    shutil.copytree(trained_model(), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """A small speech model with its feature extractor."""
    config = Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
    )
    Wav2Vec2Model(config).save_pretrained(tmp_path / "speech")
    Wav2Vec2FeatureExtractor(sampling_rate=RATE, do_normalize=False).save_pretrained(tmp_path / "speech")
    return tmp_path / "speech"


@pytest.fixture
def vision(tmp_path: Path) -> Path:
    """A small vision model with its image processor: halves the range, 8 x 8 pixels."""
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=8, patch_size=4
    )
    ViTForImageClassification(config).save_pretrained(tmp_path / "vision")
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": 8, "width": 8},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (tmp_path / "vision" / "preprocessor_config.json").write_text(json.dumps(processor))
    return tmp_path / "vision"


@pytest.fixture
def text_and_image(tmp_path: Path) -> Path:
    """A small CLIP with its processor: tokenizer and image processor."""
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config={**small, "vocab_size": 30_522, "max_position_embeddings": 64, "eos_token_id": 102},
        vision_config={**small, "image_size": 8, "patch_size": 4},
        projection_dim=8,
    )
    folder = tmp_path / "clip"
    CLIPModel(config).save_pretrained(folder)
    images = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    CLIPProcessor(image_processor=images, tokenizer=BertTokenizer.from_pretrained(trained_model())).save_pretrained(
        folder
    )
    Image.new("RGB", (30, 20), (255, 0, 0)).save(tmp_path / "red.png")
    return folder


def loaded(folder: Path, **options: object) -> Loaded:
    return load(str(folder), options=InputOptions(**options), device="cpu")  # type: ignore[arg-type]  # as the test says


def inputs_of(folder: Path, **options: object) -> Inputs:
    return loaded(folder, **options).inputs


def write_wave(path: Path, samples: list[list[int]], *, rate: int = RATE, width: int = 2) -> str:
    """A WAV file of frames, each with one sample per channel."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(samples[0]))
        file.setsampwidth(width)
        file.setframerate(rate)
        sign = width > 1
        file.writeframes(b"".join(value.to_bytes(width, "little", signed=sign) for frame in samples for value in frame))
    return str(path)


def test_trained_weights_and_tokenizer_give_the_meaning_of_sentences() -> None:
    model, inputs = loaded(trained_model(), pretrained=True, text=SENTENCES)
    ids, mask = (inputs.kwargs[name].numpy() for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        found = model(*inputs.args, **inputs.kwargs).last_hidden_state.double().numpy()

    independent = hidden_states(ids, mask)
    real = mask == 1
    assert np.abs(found - independent)[real].max() < 1e-4
    cosines = similarity(found, mask)
    assert cosines[0, 1] > 0.6
    assert max(cosines[0, 2], cosines[1, 2]) < 0.2


def test_random_weights_do_not_know_the_meaning(copy: Path) -> None:
    model, inputs = loaded(copy, text=SENTENCES)
    with torch.no_grad():
        hidden = model(**inputs.kwargs).last_hidden_state.double().numpy()

    cosines = similarity(hidden, inputs.kwargs["attention_mask"].numpy())
    assert cosines[0, 2] > 0.5


def test_the_tokens_are_those_of_the_vocabulary() -> None:
    words = (trained_model() / "vocab.txt").read_text(encoding="utf-8").splitlines()

    inputs = inputs_of(trained_model(), text=("The kitten naps.", "Yes"))

    texts = [[words[number] for number in row] for row in inputs.kwargs["input_ids"].tolist()]
    assert texts[0] == ["[CLS]", "the", "kitten", "nap", "##s", ".", "[SEP]"]
    assert texts[1] == ["[CLS]", "yes", "[SEP]", *["[PAD]"] * 4]
    assert inputs.kwargs["attention_mask"].sum().item() == 10
    assert inputs.origin == "--text 'The kitten naps.', --text 'Yes'"
    assert "input_ids: int64[2, 7], from BertTokenizer" in inputs.notes


def test_a_length_pads_and_cuts() -> None:
    padded = inputs_of(trained_model(), text=("a cat",), seq_len=9, batch_size=4)
    assert padded.kwargs["attention_mask"].tolist() == [[1] * 4 + [0] * 5]
    assert "batch_size: not applied, the inputs come from --text" in padded.notes
    cut = inputs_of(trained_model(), text=("one two three four five",), seq_len=4)
    assert tuple(cut.kwargs["input_ids"].shape) == (1, 4)


def test_a_tokenizer_without_padding_pads_with_its_end(copy: Path) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "[SEP]", "model_max_length": 512}
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))
    (copy / "special_tokens_map.json").unlink()
    tokenizer = json.loads((copy / "tokenizer.json").read_text(encoding="utf-8"))
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer | {"padding": None}))
    config = json.loads((copy / "config.json").read_text())
    small = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "architectures": ["GPT2LMHeadModel"]}
    (copy / "config.json").write_text(json.dumps({"vocab_size": config["vocab_size"], **small}))

    inputs = inputs_of(copy, text=("a cat sleeps", "a"))

    assert inputs.kwargs["input_ids"].tolist()[1] == [101, 1037, 102, 102, 102]
    assert inputs.kwargs["attention_mask"].tolist()[1] == [1, 1, 1, 0, 0]
    assert any("padded with [SEP]" in note for note in inputs.notes)


def test_an_empty_text_is_the_two_special_tokens() -> None:
    assert inputs_of(trained_model(), text=("",)).kwargs["input_ids"].tolist() == [[101, 102]]


def test_a_decoder_starts_with_its_start_token(copy: Path) -> None:
    config = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=30_522, decoder_start_token_id=0)
    T5ForConditionalGeneration(config).save_pretrained(copy)

    model, inputs = loaded(copy, text=("a cat", "a"))

    assert inputs.kwargs["decoder_input_ids"].tolist() == [[0], [0]]
    assert "token_type_ids" not in inputs.kwargs  # T5 takes none
    with torch.no_grad():
        assert model(**inputs.kwargs).logits.shape == (2, 1, 30_522)


def test_a_model_without_a_tokenizer_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    (copy / "vocab.txt").unlink()

    with pytest.raises(
        InputError, match=r"has no tokenizer \(vocab\.txt or tokenizer\.json is missing\); add its files"
    ):
        loaded(copy, text=("hello",))


def test_a_tokenizer_of_another_model_is_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": 2000}))

    with pytest.raises(
        ModelInputsError, match="the tokenizer gives token 18401, but BertModel has a vocabulary of 2000"
    ):
        loaded(copy, text=("kitten",))


def test_a_tokenizer_with_code_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "own.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": ["own.Tokenizer", None]}
    (copy / "tokenizer_config.json").write_text(json.dumps(settings))

    with pytest.raises(InputError, match=r"tokenizer_config\.json asks for Python code from its repository"):
        loaded(copy, text=("hello",))
    assert not (tmp_path / "ran").exists()


def test_kinds_of_input_that_a_model_does_not_take_are_refused(vision: Path, speech: Path) -> None:
    with pytest.raises(ModelInputsError, match=r"ViTForImageClassification takes no text, .*; use --image"):
        loaded(vision, text=("hello",))
    with pytest.raises(ModelInputsError, match=r"BertModel takes no image, .*; use --text"):
        loaded(trained_model(), image=("a.png",))
    with pytest.raises(ModelInputsError, match=r"Wav2Vec2Model takes no text, .*; use --audio"):
        loaded(speech, text=("hello",))
    with pytest.raises(
        InputError, match=r"--text needs a tokenizer .*, and openai-community/gpt2 is only a config.*--pretrained"
    ):
        load("gpt2", options=InputOptions(text=("hello",)))
    with pytest.raises(InputError, match="given twice, by --inputs and by --text"):
        load(str(trained_model()), inputs=torch.ones(1), options=InputOptions(text=("hello",)))
    with pytest.raises(InputError, match="drop --phase decode or --text"):
        InputOptions(text=("hello",), phase="decode")


def test_pixels_are_those_of_the_image(vision: Path, tmp_path: Path) -> None:
    pixels = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.new("L", (30, 20), 255).save(tmp_path / "white.png")  # grey, another size

    inputs = inputs_of(vision, image=(str(tmp_path / "a.png"), str(tmp_path / "white.png")))

    found = inputs.kwargs["pixel_values"].numpy()
    expected = pixels.transpose(2, 0, 1) / 255 * 2 - 1
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    np.testing.assert_allclose(found[1], np.ones((3, 8, 8)), atol=1e-6)


def test_text_and_images_are_prepared_together(text_and_image: Path) -> None:
    red = str(text_and_image.parent / "red.png")

    model, inputs = loaded(text_and_image, text=("a cat", "a dog that barks"), image=(red,))

    assert tuple(inputs.kwargs["input_ids"].shape) == (2, 7)
    assert tuple(inputs.kwargs["pixel_values"].shape) == (1, 3, 8, 8)
    with torch.no_grad():
        assert model(**inputs.kwargs).logits_per_image.shape == (1, 2)
    (text_and_image / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no (processor|tokenizer)"):
        loaded(text_and_image, text=("a cat",), image=(red,))


def test_what_was_not_given_is_generated_and_noted(text_and_image: Path) -> None:
    inputs = inputs_of(text_and_image, text=("a cat", "a dog"))

    assert tuple(inputs.kwargs["pixel_values"].shape) == (2, 3, 8, 8)
    assert any(note.startswith("pixel_values: float32[2, 3, 8, 8], random") for note in inputs.notes)


def test_files_that_are_no_image_are_refused(vision: Path, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("not an image")

    with pytest.raises(
        UnreadableFileError, match=r"a\.png cannot be read \(it is damaged or not an image\); give a PNG"
    ):
        loaded(vision, image=(str(tmp_path / "a.png"),))
    with pytest.raises(UnreadableFileError, match=r"cannot read .*missing\.png: No such file or directory"):
        loaded(vision, image=(str(tmp_path / "missing.png"),))
    (vision / "preprocessor_config.json").unlink()
    with pytest.raises(InputError, match="has no image processor that transformers can load"):
        loaded(vision, image=(str(tmp_path / "a.png"),))


@pytest.mark.parametrize(
    ("width", "frames", "expected"),
    [
        (2, [[0], [16_384], [-32_768], [32_767]], [0, 0.5, -1, 32_767 / 32_768]),
        (1, [[128], [255], [0]], [0, 127 / 128, -1]),
        (3, [[4_194_304], [-8_388_608]], [0.5, -1]),
        (4, [[1 << 30], [-(1 << 31)]], [0.5, -1]),
        (2, [[16_384, 0], [-16_384, -16_384]], [0.25, -0.5]),  # two channels
    ],
)
def test_samples_are_those_of_the_file(
    width: int, frames: list[list[int]], expected: list[float], speech: Path, tmp_path: Path
) -> None:
    path = write_wave(tmp_path / "a.wav", frames * 50, width=width)

    values = inputs_of(speech, audio=(path,)).kwargs["input_values"]

    np.testing.assert_allclose(values.numpy()[0, : len(expected)], expected, atol=1e-7)
    assert values.shape == (1, 50 * len(frames))


def test_audio_files_that_do_not_fit_are_refused(speech: Path, tmp_path: Path) -> None:
    path = write_wave(tmp_path / "fast.wav", [[0]] * 10, rate=44_100)
    with pytest.raises(UnreadableFileError, match="has 44100 samples a second, and the model takes 16000; resample it"):
        loaded(speech, audio=(path,))
    (tmp_path / "a.flac").write_bytes(b"fLaC....")
    with pytest.raises(UnreadableFileError, match=r"a\.flac cannot be read .*; give a WAV file"):
        loaded(speech, audio=(str(tmp_path / "a.flac"),))
    with pytest.raises(UnreadableFileError, match=r"none\.wav cannot be read"):
        loaded(speech, audio=(str(tmp_path / "none.wav"),))


@pytest.mark.parametrize("kept", [-1, -3, 20, 43])
def test_a_recording_that_ends_early_is_damaged(tmp_path: Path, kept: int) -> None:
    write_wave(tmp_path / "a.wav", [[1, 2], [3, 4]])
    (tmp_path / "a.wav").write_bytes((tmp_path / "a.wav").read_bytes()[:kept])

    with pytest.raises(UnreadableFileError, match=r"the audio file .*a\.wav"):
        _read_audio(tmp_path / "a.wav", RATE)


@pytest.mark.parametrize("kind", ["EPS", "TIFF", "ICO"])
def test_only_formats_are_read_whose_readers_start_no_program(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png", format=kind)

    with pytest.raises(UnreadableFileError, match="give a PNG or JPEG file"):
        _read_image(tmp_path / "a.png")
