"""Real inputs: text, images and audio files, prepared by the model's own tokenizer or processor."""

import io
import struct
import warnings
import wave
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from torchstone.errors import InputError, ModelInputsError, UnreadableFileError, require_package
from torchstone.foreign import foreign_code
from torchstone.models.example_inputs.architecture import PREFILL, inputs_for_architecture
from torchstone.models.example_inputs.context import InputBuilder, InputContext
from torchstone.models.inputs import InputOptions, Inputs
from torchstone.models.pretrained import Blueprint, quiet_and_offline
from torchstone.models.user_code import TINY
from torchstone.models.weight_files import ModelFolder, refuse_own_code
from torchstone.record.files import read_file, require_regular_file, shortened
from torchstone.units import many

_TAKEN_AS = {
    "text": ("input_ids",),
    "image": ("pixel_values", "flattened_patches", "image"),
    "audio": ("input_features", "input_values", "audio_values"),
}  # the parameters of forward that a kind of input may become
_ARGUMENTS = {"text": "text", "image": "images", "audio": "audio"}  # the names in which a processor takes them
_CONFIGS = ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
_MASKS = {"input_ids": ("attention_mask",), "pixel_values": ("pixel_mask",)}
_DECODER_IDS = "decoder_input_ids"
_SHOWN = 60


def inputs_from_media(model: nn.Module, blueprint: Blueprint, options: InputOptions) -> Inputs:
    """Prepare the given text, images and audio files, and generate what forward takes beside them.

    Raises ModelInputsError for a kind of input that the model does not take, InputError for a model without a tokenizer
    or processor, UnreadableFileError for an image or audio file that cannot be read.
    """
    media = options.given_media()
    if "image" in media:
        require_package("PIL", needed_for="--image")
    context = InputContext(model=model, config=blueprint.config, options=options, builder=InputBuilder(options.seed))
    for kind in media:
        _require_taken(kind, context)
    folder = blueprint.folder
    if folder is None:
        way_out = (
            "give a local folder" if blueprint.name.startswith(TINY) else "add --pretrained, or give a local folder"
        )
        msg = f"--{media[0]} needs a tokenizer or processor, and {blueprint.name} is only a configuration; {way_out}"
        raise InputError(msg)
    refuse_own_code(folder.path, *_CONFIGS)
    with quiet_and_offline():
        prepared = _prepare(folder, media, options)
    taken = {name: value for name, value in prepared.values.items() if name in context.parameters}
    _check_token_ids(taken, context)
    notes = [f"{name}: {_described(value)}, from {prepared.maker}" for name, value in taken.items()]
    beside, more = _generated_beside(taken, context, blueprint)
    return Inputs(
        kwargs={**taken, **beside},
        origin=", ".join(f"--{kind} {shorten(value, _SHOWN)!r}" for kind in media for value in getattr(options, kind)),
        notes=(*blueprint.notes, *notes, *more, *prepared.notes, *_unused_options(options, media)),
        phase=PREFILL if "past_key_values" in context.parameters else "",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """The tensors that a tokenizer or processor returned, its class, and remarks about them."""

    values: Mapping[str, object]
    maker: str
    notes: tuple[str, ...] = ()


def _require_taken(kind: str, context: InputContext) -> None:
    if any(name in context.parameters for name in _TAKEN_AS[kind]):
        return
    takes = [other for other, names in _TAKEN_AS.items() if any(name in context.parameters for name in names)]
    way_out = f"use {' or '.join(f'--{other}' for other in takes)}" if takes else "use --inputs FILE.py::FN"
    msg = f"{type(context.model).__name__} takes no {kind}, so --{kind} does not apply to it; {way_out}"
    raise ModelInputsError(msg)


def _prepare(folder: ModelFolder, media: Sequence[str], options: InputOptions) -> _Prepared:
    match list(media):
        case ["text"]:
            return _tokenized(folder, options)
        case ["image"]:
            processor = _loaded("AutoImageProcessor", folder, "image processor")
            images = [_read_image(Path(name)) for name in options.image]
            return _processed(processor, folder, images=images)
        case ["audio"]:
            extractor = _loaded("AutoFeatureExtractor", folder, "feature extractor")
            rate = _sampling_rate(extractor)
            waves = [_read_audio(Path(name), rate) for name in options.audio]
            return _processed(extractor, folder, raw_speech=waves, sampling_rate=rate)
        case _:
            return _processed_together(folder, media, options)


# --- Text ---


def _tokenized(folder: ModelFolder, options: InputOptions) -> _Prepared:
    tokenizer = _loaded("AutoTokenizer", folder, "tokenizer")
    _require_vocabulary(tokenizer, folder)
    notes: list[str] = []
    length: dict[str, object] = {"padding": len(options.text) > 1}
    if options.seq_len is not None:
        length = {"padding": "max_length", "truncation": True, "max_length": options.seq_len}
        notes.append(f"input_ids: padded or cut to {many(options.seq_len, 'token')} by --seq-len")
    if length["padding"] and tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        notes.append(f"input_ids: padded with {tokenizer.pad_token}, as the tokenizer has no token for padding")
    prepared = _processed(tokenizer, folder, text=list(options.text), **length)
    return replace(prepared, notes=(*prepared.notes, *notes))


def _require_vocabulary(tokenizer: object, folder: ModelFolder) -> None:
    """Refuse a tokenizer without its files: transformers then makes one that knows no word."""
    names = [name for name in getattr(tokenizer, "vocab_files_names", {}).values() if isinstance(name, str)]
    if names and not any((folder.path / name).is_file() for name in names):
        msg = (
            f"{folder.path} has no tokenizer ({' or '.join(names)} is missing); "
            "add its files, or give token ids with --inputs FILE.py::FN"
        )
        raise InputError(msg)


def _check_token_ids(taken: Mapping[str, object], context: InputContext) -> None:
    """Refuse token ids that the model's embedding does not have: the tokenizer is another model's."""
    ids, size = taken.get("input_ids"), getattr(context.text, "vocab_size", None)
    if isinstance(ids, torch.Tensor) and isinstance(size, int) and ids.numel() and int(ids.max()) >= size:
        name = type(context.model).__name__
        msg = (
            f"the tokenizer gives token {int(ids.max())}, but {name} has a vocabulary of {size}: "
            "it belongs to another model; give token ids with --inputs FILE.py::FN"
        )
        raise ModelInputsError(msg)


# --- Images and audio ---


_IMAGES = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # others have readers that start programs, such as that of PostScript
_DAMAGED_IMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, ArithmeticError, MemoryError,
                  struct.error, zlib.error)  # fmt: skip


def _read_image(path: Path) -> object:
    from PIL import Image

    content = io.BytesIO(read_file(path))  # of a file itself, Pillow allocates whatever a chunk says
    try:
        with (
            warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning),
            Image.open(content, formats=_IMAGES) as image,
        ):
            return image.convert("RGB")
    except (*_DAMAGED_IMAGE, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        msg = f"the image {path} cannot be read (it is damaged or not an image); give a PNG or JPEG file"
        raise UnreadableFileError(msg) from error


def _sampling_rate(processor: object) -> int:
    rate = getattr(processor, "sampling_rate", None) or getattr(
        getattr(processor, "feature_extractor", None), "sampling_rate", None
    )
    if not isinstance(rate, int):
        msg = f"{type(processor).__name__} states no sampling rate; give the inputs with --inputs FILE.py::FN"
        raise InputError(msg)
    return rate


def _read_audio(path: Path, rate: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The samples of a WAV file between -1 and 1; several channels are averaged."""
    require_regular_file(path)
    try:
        with wave.open(str(path), "rb") as file:
            found, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            most = path.stat().st_size // (channels * width) + 1  # whatever the header says: it is allocated first
            raw = file.readframes(min(file.getnframes(), most))
    except (OSError, EOFError, RuntimeError, ValueError, struct.error, wave.Error) as error:
        reason = shortened(error) if str(error) else "it is damaged"
        msg = f"the audio file {path} cannot be read ({reason}); give a WAV file with integer samples"
        raise UnreadableFileError(msg) from error
    if not 1 <= width <= _WIDEST_SAMPLE or len(raw) % (width * channels):
        msg = f"the audio file {path} is damaged: {len(raw)} bytes are not frames of {channels} x {width} bytes"
        raise UnreadableFileError(msg)
    if found != rate:
        msg = (
            f"{path} has {found} samples a second, and the model takes {rate}; resample it: ffmpeg -i IN -ar {rate} OUT"
        )
        raise UnreadableFileError(msg)
    return _samples(raw, width).reshape(-1, channels).mean(axis=1).astype(np.float32)


_WIDEST_SAMPLE = 4  # bytes


def _samples(raw: bytes, width: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Little-endian integers of 1 to 4 bytes as numbers between -1 and 1; those of one byte are unsigned."""
    octets = np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)
    if width == 1:
        return octets[:, 0].astype(np.float64) / 128 - 1
    padded = np.zeros((len(octets), 4), dtype=np.uint8)
    padded[:, 4 - width :] = octets  # in the upper bytes, so that the sign is in place
    return padded.view("<i4")[:, 0].astype(np.float64) / 2**31


# --- Any tokenizer or processor ---


def _processed_together(folder: ModelFolder, media: Sequence[str], options: InputOptions) -> _Prepared:
    processor = _loaded("AutoProcessor", folder, "processor")
    given: dict[str, object] = {}
    if "text" in media:
        _require_vocabulary(getattr(processor, "tokenizer", processor), folder)
        given |= {_ARGUMENTS["text"]: list(options.text), "padding": len(options.text) > 1}
    if "image" in media:
        given[_ARGUMENTS["image"]] = [_read_image(Path(name)) for name in options.image]
    if "audio" in media:
        rate = _sampling_rate(processor)
        given |= {_ARGUMENTS["audio"]: [_read_audio(Path(name), rate) for name in options.audio], "sampling_rate": rate}
    return _processed(processor, folder, **given)


def _loaded(class_name: str, folder: ModelFolder, what: str) -> Any:
    with foreign_code() as ran:  # transformers raises what it likes for files that are missing or damaged
        auto_class = getattr(transformers, class_name)
        return auto_class.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
    reason = (str(ran.error).strip() or type(ran.error).__name__).splitlines()[0]
    msg = f"{folder.path} has no {what} that transformers can load ({reason}); add its files, or use --inputs"
    raise InputError(msg) from ran.error


def _processed(processor: Any, folder: ModelFolder, **given: object) -> _Prepared:
    maker = type(processor).__name__
    first = given.pop("raw_speech", None)  # feature extractors name their first argument differently
    with foreign_code() as ran:  # a processor checks its inputs in its own ways
        values = processor(*(() if first is None else (first,)), **given, return_tensors="pt")
    if ran.error is not None:
        reason = " ".join(str(ran.error).split()) or type(ran.error).__name__
        msg = f"{maker} of {folder.path} cannot prepare these inputs: {shorten(reason, 300)}; use --inputs FILE.py::FN"
        raise ModelInputsError(msg) from ran.error
    return _Prepared(values=dict(values), maker=maker)


# --- What forward takes beside them ---


def _generated_beside(
    taken: Mapping[str, object], context: InputContext, blueprint: Blueprint
) -> tuple[dict[str, object], list[str]]:
    """The start token of a decoder, and generated values for other required kinds of input, each with its note."""
    batch = next((len(value) for value in taken.values() if isinstance(value, torch.Tensor) and value.ndim), 1)
    ids = taken.get("input_ids")
    length = ids.shape[1] if isinstance(ids, torch.Tensor) else context.options.seq_len
    sizes = replace(context.options, batch_size=batch, seq_len=length)
    generated = inputs_for_architecture(context.model, replace(blueprint, notes=()), sizes)
    wanted = {_DECODER_IDS, *context.required}
    for names in _TAKEN_AS.values():
        if not any(name in taken for name in names):
            wanted |= {one for name in names for one in (name, *_MASKS.get(name, ()))}
    beside = {name: value for name, value in generated.kwargs.items() if name in wanted and name not in taken}
    notes = [note for note in generated.notes if note.partition(":")[0] in beside]
    start = getattr(context.config, "decoder_start_token_id", None)
    if _DECODER_IDS in beside and isinstance(start, int):
        beside[_DECODER_IDS] = torch.full((batch, 1), start)
        notes = [note for note in notes if not note.startswith(_DECODER_IDS)]
        notes.append(f"{_DECODER_IDS}: int64[{batch}, 1], the start token of the decoder")
    return beside, notes


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return type(value).__name__


def _unused_options(options: InputOptions, media: Sequence[str]) -> list[str]:
    used = {"phase", *(["seq_len"] if list(media) == ["text"] else ())}
    return [
        f"{name}: not applied, the inputs come from --{media[0]}"
        for name in options.given_input_options()
        if name not in used
    ]
