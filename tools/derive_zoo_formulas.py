"""Derive one formula for each zoo model that the formulas of its family do not cover: its cost by batch and length.

    PYTHONPATH=src python tools/derive_zoo_formulas.py [MODEL ...] [--out FILE]

The formula of the whole model, at exactly its published configuration and element type, must give the traced cost of
the default call and of the hidden points of every derivation. It is stored with a digest of the configuration, so that
it is not used after the configuration has changed. Models that have a formula in the file are skipped. A model is
derived in a child with limits on its processor time and memory; one that is refused is printed with the reason.
"""

import argparse
import gc
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchstone.errors import TorchstoneError
from torchstone.models.inputs import InputOptions
from torchstone.models.zoo.catalogue import ZooEntry, entries
from torchstone.record.formula import FormulaEntry, ZooFormulas
from torchstone.workflows.cost_from_formulas import ZOO_FORMULAS, config_digest, cost_from_family
from torchstone.workflows.formula_derive import make_bench

if TYPE_CHECKING:
    from torch import nn

PROCESSOR_S = 240
MEMORY_BYTES = 9 << 30


def main() -> int:
    """Derive the models that have no formula yet; the file is written after each."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("models", nargs="*")
    options.add_argument("--out", type=Path, default=ZOO_FORMULAS)
    given = options.parse_args()
    known = msgspec.json.decode(given.out.read_bytes(), type=ZooFormulas).models if given.out.exists() else {}
    make_bench("deriving").measure(*_anything())  # loads what all children need
    gc.freeze()
    for entry in _one_of_each_family_first():
        if entry.id in known or (given.models and entry.id not in given.models) or _covered(entry):
            continue
        answer = _in_child(entry)
        try:
            known[entry.id] = msgspec.json.decode(answer, type=FormulaEntry)
        except msgspec.DecodeError:
            print(f"refused  {entry.id}: {answer.decode() or 'it took too long'}", flush=True)
            continue
        print(f"derived  {entry.id}", flush=True)
        ordered = ZooFormulas(models=dict(sorted(known.items())))
        given.out.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    print(f"{len(known)} models in {given.out}")
    return 0


def _one_of_each_family_first() -> list[ZooEntry]:
    listed = entries()
    places = {one.id: sum(other.family == one.family for other in listed[:number]) for number, one in enumerate(listed)}
    return sorted(listed, key=lambda one: places[one.id])


def _anything() -> "tuple[nn.Module, object]":
    import torch
    import transformers.models.auto.modeling_auto  # noqa: F401 - loaded for the children
    from torch import nn

    import torchstone.formula.derive.derive_model  # noqa: F401 - loaded for the children

    torch.set_num_threads(1)
    return nn.Linear(3, 5), (torch.zeros(2, 3),)


def _covered(entry: ZooEntry) -> bool:
    try:
        cost_from_family(entry.id, InputOptions())
    except TorchstoneError:
        return False
    return True


def _in_child(entry: ZooEntry) -> bytes:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        with os.fdopen(writer, "wb") as answers:
            try:
                answers.write(msgspec.json.encode(_derive(entry)))
            except Exception as error:  # noqa: BLE001 - the model's own code: every failure is a line
                answers.write(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def _derive(entry: ZooEntry) -> FormulaEntry:
    """The formula of the root, with the sizes of the default call as defaults; raises with the reason."""
    from torchstone.formula.derive.derive_model import ConfiguredModel, derive_model
    from torchstone.formula.derive.gate import formulas_of, judge
    from torchstone.formula.derive.observe import observe
    from torchstone.formula.derive.validate import Options
    from torchstone.models.pretrained import find_blueprint

    dtype = str(entry.config.get("dtype") or entry.config.get("torch_dtype") or "float32").removeprefix("torch.")
    blueprint = find_blueprint(entry.id, InputOptions())
    model = ConfiguredModel(blueprint=blueprint, bench=make_bench("deriving"), options=Options(dtype=dtype))
    sample = model.sample({}, held_out=True)
    if sample is None:
        raise RuntimeError(model.problem)
    seen = observe(sample)
    root = seen[0].class_name
    library = derive_model(model, seen)
    found = library.entries.get(root)
    if found is None:
        refused = library.refused.get(root) or next(iter(library.refused.values()), None)
        raise RuntimeError(refused.reason if refused else "no formula was found")
    if not judge(formulas_of([found]), seen[:1]).checked.get(root):
        msg = "the default call is outside the domain of its formula"
        raise RuntimeError(msg)
    sizes = {name: str(seen[0].parameters.value(name)) for name in found.all_parameters}
    return msgspec.structs.replace(found, settings={"config": config_digest(entry.config)}, defaults=sizes)


if __name__ == "__main__":
    sys.exit(main())
