"""Weight files of a pretrained model: the folder that has them, their hashes; no code of a model is run.

A model is a local folder, or a model id whose files are in the Hugging Face cache. The network is used only on request.
"""

import re
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from torchstone.errors import InputError, ModelError, UnknownModelError, UnreadableFileError
from torchstone.models.inputs import InputOptions
from torchstone.models.zoo.catalogue import find_entry
from torchstone.record.files import read_json

CONFIG = "config.json"
_SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")  # read with weights_only: no code runs
_LENGTH_BYTES = 8  # of a header of safetensors
_LFS_POINTER = b"version https://git-lfs"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
# Weights and plain data, nothing that could be code; subfolders hold other formats of the same weights.
_DOWNLOADED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken"]
_SKIPPED = ["*/*"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A folder with a configuration and, mostly, weights."""

    path: Path
    name: str  # as provenance shows it: the model id on the hub, or the path
    revision: str = ""  # the commit, for a model from the hub


def find_hub_model(name: str, options: InputOptions) -> ModelFolder:
    """The folder of a model id in the Hugging Face cache; with `options.download` it is fetched when it is missing.

    Raises UnknownModelError where it is not found.
    """
    entry = find_entry(name)
    ids = list(dict.fromkeys([name, *((entry.id, *entry.aliases) if entry is not None else ())]))
    if not all(_HUB_ID.fullmatch(one) for one in ids):
        msg = f"{name!r} is neither a folder nor a model id such as google-bert/bert-base-uncased"
        raise UnknownModelError(msg)
    for one in ids:
        found = _in_cache(one, options)
        if found is not None:
            return found
    if options.download:
        return _downloaded(entry.id if entry is not None else name, options.revision)
    at = f" at revision {options.revision}" if options.revision else ""
    msg = (
        f"{name}{at} has no weights in the Hugging Face cache ({_cache_folder()}); "
        "give a local folder with its files, or allow the download with --download"
    )
    raise UnknownModelError(msg)


def _cache_folder() -> str:
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _in_cache(repository: str, options: InputOptions) -> ModelFolder | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, CONFIG, revision=options.revision)
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    try:
        complete = bool(weight_files(folder))  # often only the configuration was fetched
    except UnreadableFileError:
        if not options.download:
            raise
        complete = False
    return None if not complete else ModelFolder(path=folder, name=repository, revision=folder.name)


def _downloaded(repository: str, revision: str | None) -> ModelFolder:
    from huggingface_hub import snapshot_download

    try:
        folder = Path(
            snapshot_download(
                repository, revision=revision, allow_patterns=_DOWNLOADED, ignore_patterns=_SKIPPED, max_workers=1
            )
        )
    except (OSError, ValueError, RuntimeError) as error:  # every error of the hub and of the connection is one of them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        msg = f"{repository} cannot be downloaded: {reason}; give a local folder with its files instead"
        raise ModelError(msg) from error
    return ModelFolder(path=folder, name=repository, revision=folder.name)


# --- Files ---


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files that hold the weights: safetensors where there are any, shards in the order of their names.

    Empty for a folder without weights. Raises UnreadableFileError for an index that names files that are not there.
    """
    for single, index in (_SAFETENSORS, _PICKLES):
        if (folder / single).is_file():
            return (folder / single,)
        if (folder / index).is_file():
            return _shards(folder / index)
    return ()


def uses_safetensors(files: tuple[Path, ...]) -> bool:
    """Whether weight files are safetensors and not pickles."""
    return files[0].suffix == ".safetensors"


def tensor_bytes(folder: Path) -> int | None:
    """Bytes of all tensors in a folder's safetensors; None where it has none, or one without such a header."""
    files = weight_files(folder)
    if not files or not uses_safetensors(files):
        return None
    total = 0
    for path in files:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        tensors = path.stat().st_size - _LENGTH_BYTES - header
        if tensors < 0:
            return None
        total += tensors
    return total


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"{index} is not an index of weight files ({type(error).__name__}: {error}); download it again"
        raise UnreadableFileError(msg) from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            msg = f"{index} names {name!r:.80}, which is not a file beside it; download the whole model again"
            raise UnreadableFileError(msg)
        if not _is_file(index.parent / name):
            msg = f"{index} names {name:.80}, which is missing; download the whole model again"
            raise UnreadableFileError(msg)
    return tuple(index.parent / name for name in names)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def hash_files(files: tuple[Path, ...]) -> dict[str, str]:
    """The SHA-256 of each file by name."""
    found: dict[str, str] = {}
    for path in files:
        with path.open("rb") as file:
            found[path.name] = file_digest(file, "sha256").hexdigest()
    return found


# --- Refusals ---


def require_readable(files: tuple[Path, ...]) -> None:
    """Refuse pointers that Git leaves where its large files were not fetched."""
    for path in files:
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                msg = f"{path} is a Git LFS pointer, not the weights; run `git lfs pull` in {path.parent}"
                raise UnreadableFileError(msg)


def refuse_own_code(folder: Path, *names: str) -> None:
    """Refuse configuration files that ask for Python code from the model's repository: torchstone runs none."""
    for name in names:
        path = folder / name
        if not path.is_file():
            continue
        content = read_json(path)
        asked = content.get("auto_map") if isinstance(content, dict) else None
        if asked:
            msg = (
                f"{path} asks for Python code from its repository (auto_map: {asked}), which torchstone does not run; "
                "remove auto_map in a copy to use the classes of transformers, or write a load_model function"
            )
            raise InputError(msg)
