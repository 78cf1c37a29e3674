"""Captures of the zoo's models that come with torchstone: the first question about one needs no torch either.

They are the captures of the default inputs, made by `tools/zoo_captures.py`. One answers only where a capture made here
would be the same: of the same configuration, with the versions of torch and transformers that made it; or without
torch.
"""

from hashlib import sha256
from pathlib import Path

import msgspec

import torchstone
from torchstone.errors import TorchstoneError
from torchstone.models.inputs import InputOptions
from torchstone.models.zoo.catalogue import ZooEntry, find_entry
from torchstone.record.codec import decode
from torchstone.record.files import read_unpacked
from torchstone.record.trace import Trace
from torchstone.workflows.capture_cache import CaptureKey, installed_version, is_off

FOLDER = Path(torchstone.__file__).parent / "models" / "zoo" / "captures"
SIZES = FOLDER.parent / "sizes.json"
DEFAULT_WAY = {"mode": "auto", "reuse": True, "backward": False}
_MOST_BYTES = 64 << 20  # of one capture, written out


def shipped_capture(key: CaptureKey) -> Trace | None:
    """The shipped capture that answers a request; None where there is none, or another one would be made here."""
    if is_off() or key.options != InputOptions() or dict(key.how) != DEFAULT_WAY or Path(key.model).exists():
        return None
    entry = find_entry(key.model)
    if entry is None or not path_of(entry).is_file():
        return None
    path = path_of(entry)
    try:
        trace = decode(read_unpacked(path, most_bytes=_MOST_BYTES), Trace, origin=path.name)
    except TorchstoneError:
        return None  # damaged: the model is captured
    return msgspec.structs.replace(trace, configuration=sizes_of(entry)) if _would_be_made_here(trace) else None


def sizes_of(entry: ZooEntry) -> dict[str, int]:
    """The sizes of the configuration of a model, as formulas name them: their defaults are transformers' own."""
    found = msgspec.json.decode(SIZES.read_bytes(), type=dict[str, dict[str, int]]) if SIZES.is_file() else {}
    return found.get(path_of(entry).name, {})


def path_of(entry: ZooEntry) -> Path:
    """Where the capture of a model is: its name has a digest of the configuration that it was made from."""
    digest = sha256(msgspec.json.encode(entry)).hexdigest()[:12]
    return FOLDER / f"{entry.id.replace('/', '--')}.{digest}.json.gz"


def _would_be_made_here(trace: Trace) -> bool:
    installed = {name: installed_version(name).partition("+")[0] for name in ("torch", "transformers")}
    if not installed["torch"]:
        return True  # nothing can be captured here
    return all(trace.provenance.versions.get(name, "").partition("+")[0] == one for name, one in installed.items())
