"""Check the tiny models of the public architecture list on every installed backend, and write docs/backend-results.md.

    python tools/backend_results.py --backends aot_eager,onnxruntime --models bert,gpt2

What was checked before is kept under .cache/backend-results and not run again; delete it to begin anew. The page tells
all that is kept, and of the rest what it had before; `--page` only writes it. A backend of another environment is
given as NAME=PYTHON; where that one has torchstone's own needs and transformers too, this script may be run by its
Python instead, and the models' code runs.
"""

import argparse
import os
import platform
import re
import time
from pathlib import Path

from torchstone.backends.lookup import BUILT_IN
from torchstone.backends.registry import describe
from torchstone.check.check_model import Subject, run_check
from torchstone.check.matrix import Cell, results_page, unlocking_page, verdict
from torchstone.check.settings import Folder, Settings
from torchstone.errors import TorchstoneError
from torchstone.models.inputs import InputOptions
from torchstone.record.check import CheckResult
from torchstone.record.codec import load
from torchstone.record.task import Limits
from torchstone.workflows.check import STAGES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "backend-results.md"
OPINFO = "## Found by torch's own test database and by chains"
UNLOCKING_PAGE = ROOT / "docs" / "unlocking-ops.md"
KEPT = ROOT / ".cache" / "backend-results"
MODELS = (
    "bert", "albert", "distilbert", "roberta", "deberta-v2", "gpt2", "llama", "mistral", "qwen3", "gemma2", "opt",
    "bloom", "mixtral", "t5", "bart", "whisper", "wav2vec2", "mamba", "vit", "swin", "convnext", "resnet",
    "mobilenet_v2", "segformer", "detr", "clip",
)  # fmt: skip
LENGTHS = {"mamba": 8}  # tokens, where the default of 128 makes a graph of tens of thousands of ops
_HEAD = """# Backend results

Written by `tools/backend_results.py`; do not edit. The models are tiny, with random weights, from the public
architecture list. Each one was checked with [`torchstone check`](commands/check.md) against eager. A cell is the
verdict of the whole model. Where a model fails, the cell shows how many of its unique modules work and which op
fails; the findings are below the table. Inputs are the generated ones; mamba runs on 8 tokens, because compilers
unroll its loop over them. [Which op unlocks most models](unlocking-ops.md) counts them by op.
"""
_UNLOCKING_HEAD = """# Which op unlocks most models

Written by `tools/backend_results.py`; do not edit. Of the models in [backend results](backend-results.md): an op
unlocks a model when nothing else fails in it.
"""


def check_one(model: str, backend: str, python: str | None) -> None:
    """Check one model on one backend; the whole model first, and the rest only where that fails."""
    folder = Folder(path=KEPT / backend / model)
    if folder.result.is_file() or (folder.path / "refused.txt").is_file():
        return
    folder.path.mkdir(parents=True, exist_ok=True)
    settings = Settings(backend=backend, python=python, exports_ir=False, limits=Limits(deadline_s=300.0), jobs=1)
    start = time.monotonic()
    try:
        result = run_check(
            Subject(model=f"tiny:{model}", options=InputOptions(seq_len=LENGTHS.get(model))),
            settings, folder, stages=STAGES, resume=folder.about.is_file(),
        )  # fmt: skip
    except TorchstoneError as error:
        (folder.path / "refused.txt").write_text(str(error), encoding="utf-8")
        print(f"{model} on {backend}: {error}", flush=True)
        return
    print(f"{model} on {backend}: {verdict(result)}, {time.monotonic() - start:.0f} s", flush=True)


def pages() -> tuple[str, str]:
    """Both pages from what is kept."""
    earlier, versions = _page_before()
    known = {backend for _, backend in earlier}
    backends = [name for name in BUILT_IN if (KEPT / name).is_dir() or name in known]
    cells = [_kept(model, backend, earlier) for backend in backends for model in MODELS]
    head = f"{_HEAD}\nPython {platform.python_version()}, {os.cpu_count()} cores. Versions:\n"
    return results_page(cells, head, versions), unlocking_page(cells, _UNLOCKING_HEAD)


def _page_before() -> tuple[dict[tuple[str, str], tuple[str, tuple[str, ...]]], dict[str, str]]:
    """The cells of the page as it is, each with its reasons, and the versions of the backends."""
    text = PAGE.read_text(encoding="utf-8").partition(OPINFO)[0] if PAGE.is_file() else ""
    versions = dict(re.findall(r"^- `(\w+)`: (.+)$", text, re.MULTILINE))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    reasons = {
        (model, backend): tuple(body.strip().splitlines())
        for model, backend, body in re.findall(r"^### (\S+) on (\S+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    cells = {}
    for row in rows[1:]:
        for backend, shown in zip(rows[0][1:], row[1:], strict=True):
            if row[0] and shown not in ("not run", "refused"):
                cells[row[0], backend] = (shown, reasons.get((row[0], backend), ()))
    return cells, versions


def _kept(model: str, backend: str, earlier: dict[tuple[str, str], tuple[str, tuple[str, ...]]]) -> Cell:
    folder = KEPT / backend / model
    path, refused = Folder(path=folder).result, folder / "refused.txt"
    return Cell(
        model=model,
        backend=backend,
        result=load(path, CheckResult) if path.is_file() else None,
        refused=refused.read_text(encoding="utf-8") if refused.is_file() else "",
        earlier=earlier.get((model, backend), ("", ()))[0],
        earlier_reasons=earlier.get((model, backend), ("", ()))[1],
    )


def _opinfo_section() -> str:
    """What a sweep of torch's own test database found, written by hand: it takes hours on two cores."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    _, mark, section = text.partition(OPINFO)
    return f"\n{mark}{section}" if mark else ""


def main() -> None:
    """Check what is asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backends", default="aot_eager,onnxruntime,inductor")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    backends = [one.partition("=") for one in given.backends.split(",")]
    if not given.page:
        for name, _, python in backends:
            if describe(name, python=python or None).usable:
                for model in given.models.split(","):
                    check_one(model, name, python or None)
    results, unlocking = pages()
    PAGE.write_text(results + _opinfo_section(), encoding="utf-8")
    UNLOCKING_PAGE.write_text(unlocking, encoding="utf-8")


if __name__ == "__main__":
    main()
