"""Capture the zoo's models at their default inputs and write src/torchstone/models/zoo/captures.

    PYTHONPATH=src python tools/zoo_captures.py [--check] [--sizes] [MODEL ...]

The captures have no code and no path of this machine in them. A file is only written where the capture differs from the
one that is there in more than its date. With --check nothing is written, and the exit code is 1 where one differs. A
model whose forward pass fails without weights is left out and named. The sizes of their configurations, at which
`cost --by formula` evaluates formulas without torch, are one file beside them; --sizes writes that file alone.
"""

import argparse
import gzip
import sys
from pathlib import Path

import msgspec

from torchstone.formula.derive.sampling_plans import parameters_of
from torchstone.models.inputs import InputOptions
from torchstone.models.pretrained import find_blueprint
from torchstone.models.zoo.catalogue import ZooEntry, entries
from torchstone.record.codec import decode, encode, write_atomically
from torchstone.record.trace import Trace
from torchstone.workflows.model_source import ModelRequest, load_trace
from torchstone.workflows.shipped_captures import FOLDER, SIZES, path_of

_LIBRARIES = "site-packages/"


def main() -> int:
    """Capture what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    given = parser.parse_args()
    if not given.check:
        write_sizes()
    if given.sizes:
        return 0
    chosen = [one for one in entries() if not given.models or one.id in given.models]
    FOLDER.mkdir(exist_ok=True)
    changed = [entry.id for entry in chosen if _update(entry, check=given.check)]
    print(f"{len(chosen)} models, {len(changed)} {'differ' if given.check else 'written'}")
    if not given.models and not given.check:
        known = {path_of(entry).name for entry in entries()}
        for path in FOLDER.glob("*.json.gz"):
            if path.name not in known:
                path.unlink()
    return int(given.check and bool(changed))


def _update(entry: ZooEntry, *, check: bool) -> bool:
    """Whether the capture of a model is another one than the file has."""
    trace = load_trace(ModelRequest(model=entry.id, cached=False))
    if trace.failure is not None:
        print(f"left out: {entry.id}: {trace.failure.error}", flush=True)
        return False
    path, new = path_of(entry), without_this_machine(trace)
    known = decode(gzip.decompress(path.read_bytes()), Trace, origin=path.name) if path.is_file() else None
    if known is not None and _undated(known) == _undated(new):
        return False
    print(f"{'differs' if check else 'captured'}: {entry.id}", flush=True)
    if not check:
        write_atomically(path, gzip.compress(encode(new), 9, mtime=0))
    return True


def sizes() -> dict[str, dict[str, int]]:
    """By the name of a capture: the sizes of the configuration that it was made from."""
    found = {}
    for entry in entries():
        if path_of(entry).is_file():
            found[path_of(entry).name] = parameters_of(find_blueprint(entry.id, InputOptions()).config)
    return dict(sorted(found.items()))


def write_sizes() -> None:
    """Write the sizes of all models that have a capture."""
    write_atomically(SIZES, msgspec.json.format(msgspec.json.encode(sizes()), indent=1) + b"\n")


def without_this_machine(trace: Trace) -> Trace:
    """The trace without code, and with files as their library names them."""
    sources = {
        name: msgspec.structs.replace(one, file=one.file.partition(_LIBRARIES)[2])
        for name, one in trace.sources.items()
        if _LIBRARIES in one.file
    }
    found = msgspec.structs.replace(trace, sources=sources, lines=None)
    if str(Path(sys.prefix)).encode() in encode(found):
        msg = f"the capture of {trace.provenance.model} names a path of this machine"
        raise SystemExit(msg)
    return found


def _undated(trace: Trace) -> bytes:
    return encode(msgspec.structs.replace(trace, provenance=msgspec.structs.replace(trace.provenance, created="")))


if __name__ == "__main__":
    sys.exit(main())
