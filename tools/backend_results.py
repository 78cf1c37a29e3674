"""Check the tiny models of the public architecture list on every installed backend, and write docs/backend-results.md.

    python tools/backend_results.py --backends aot_eager,onnxruntime --models bert,gpt2

What was checked before is kept under .cache/backend-results and not run again; delete it to begin anew. The page tells
all that is kept; `--page` only writes it. A backend of another environment is given as NAME=PYTHON; where that one has
torchstone's own needs and transformers too, this script may be run by its Python instead, and the models' code runs.
"""

import argparse
import os
import platform
import time
from collections import Counter
from pathlib import Path

from torchstone.backends.lookup import BUILT_IN
from torchstone.backends.registry import describe
from torchstone.check.check_model import Subject, run_check
from torchstone.check.settings import Folder, Settings
from torchstone.errors import TorchstoneError
from torchstone.record.check import CheckResult, Finding, Status
from torchstone.record.codec import load
from torchstone.record.task import Limits
from torchstone.workflows.check import STAGES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "backend-results.md"
OPINFO = "## Found by torch's own test database"
KEPT = ROOT / ".cache" / "backend-results"
MODELS = (
    "bert", "albert", "distilbert", "roberta", "deberta-v2", "gpt2", "llama", "mistral", "qwen3", "gemma2", "opt",
    "bloom", "mixtral", "t5", "bart", "whisper", "wav2vec2", "mamba", "vit", "swin", "convnext", "resnet",
    "mobilenet_v2", "segformer", "detr", "clip",
)  # fmt: skip
_HEAD = """# Backend results

Written by `tools/backend_results.py`; do not edit. The models are tiny, with random weights, from the public
architecture list. Each one was checked with [`torchstone check`](commands/check.md) against eager. A cell is the
verdict of the whole model. Where a model fails, the cell shows how many of its unique modules work and which op
fails; the findings are below the table.
"""
_WORKING = (Status.SUCCESS, Status.INHERITED_SUCCESS)


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
            Subject(model=f"tiny:{model}"), settings, folder, stages=STAGES, resume=folder.about.is_file()
        )
    except TorchstoneError as error:
        (folder.path / "refused.txt").write_text(str(error), encoding="utf-8")
        print(f"{model} on {backend}: {error}", flush=True)
        return
    print(f"{model} on {backend}: {verdict(result)}, {time.monotonic() - start:.0f} s", flush=True)


def verdict(result: CheckResult) -> str:
    """A cell: works, or how it fails, how many modules work all the same, and what is to blame."""
    if result.passed:
        return "works"
    modules = [module for module in result.modules if not module.container]
    working = sum(module.status in _WORKING for module in modules)
    blamed = list(dict.fromkeys(map(_blamed, result.findings)))
    more = f" and {len(blamed) - 1} more" if blamed[1:] else ""
    cause = f": {blamed[0]}{more}" if blamed else ""
    return f"**{result.modules[0].outcome or 'fails inside'}**, {working} of {len(modules)} modules work{cause}"


def page() -> str:
    """The page from what is kept."""
    backends = [name for name in BUILT_IN if (KEPT / name).is_dir()]
    results = {(model, backend): _kept(model, backend) for model in MODELS for backend in backends}
    versions = {name: _version(one) for (_, name), one in results.items() if one is not None}
    lines = [_HEAD, f"Python {platform.python_version()}, {os.cpu_count()} cores. Versions:", ""]
    lines += [f"- `{backend}`: {versions.get(backend, 'not run')}" for backend in backends]
    lines += ["", f"| model | {' | '.join(backends)} |", "|---" * (len(backends) + 1) + "|"]
    for model in MODELS:
        cells = [_cell(model, backend, results[model, backend]) for backend in backends]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    counts = [_count([results[model, backend] for model in MODELS]) for backend in backends]
    lines += [f"| | {' | '.join(counts)} |", "", "## What fails, and why", ""]
    failing = [(model, backend, one) for (model, backend), one in results.items() if one is not None and not one.passed]
    for model, backend, one in failing:
        lines += [f"### {model} on {backend}", ""]
        counted = Counter(map(_finding, one.findings))
        lines += [f"- {text}{f' ({count} times)' if count > 1 else ''}" for text, count in counted.items()]
        lines += [f"- {module.module_path}: not judged: {module.reason}" for module in one.unjudged]
        lines.append("")
    return "\n".join(lines if failing else [*lines, "Nothing.", ""])


def _version(result: CheckResult) -> str:
    where = "; the recorded ops ran, in an environment of its own" if result.form == "program" else ""
    return f"{result.backend_version}{where}"


def _kept(model: str, backend: str) -> CheckResult | None:
    path = Folder(path=KEPT / backend / model).result
    return load(path, CheckResult) if path.is_file() else None


def _cell(model: str, backend: str, result: CheckResult | None) -> str:
    if result is not None:
        return verdict(result)
    return "refused" if (KEPT / backend / model / "refused.txt").is_file() else "not run"


def _count(results: list[CheckResult | None]) -> str:
    known = [result for result in results if result is not None]
    return f"{sum(result.passed for result in known)} of {len(known)}"


def _finding(finding: Finding) -> str:
    reason = " ".join(finding.reason.split())[:160].replace("|", "\\|").replace("<", "&lt;")
    script = "a script shows it" if finding.confirmed else "no script shows it"
    shapes = f", with {finding.shapes}" if finding.shapes else ""
    where = finding.module_path or "the model itself"
    return f"{_blamed(finding)} in `{where}`: {finding.outcome}: {reason} ({script}{shapes})"


def _blamed(finding: Finding) -> str:
    return f"`{finding.subject}`" if finding.ops else finding.subject


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
    PAGE.write_text(page() + _opinfo_section(), encoding="utf-8")


if __name__ == "__main__":
    main()
