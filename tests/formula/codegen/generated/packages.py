"""Generated packages, and a bare interpreter that runs them."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchstone.formula.codegen.package import generated_files, write_package
from torchstone.formula.database.files import Formulas

_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from generated_modules import compute_flops, compute_memory
for name, parameters in json.load(sys.stdin):
    try:
        answer = [compute_flops(name, **parameters), compute_memory(name, **parameters)]
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps(answer, default=str))
assert not {name.partition(".")[0] for name in sys.modules} & {"torchstone", "msgspec", "click", "torch"}
"""


def generate(formulas: Formulas, folder: Path) -> Path:
    """Write the package of these formulas into a folder."""
    return write_package(folder, generated_files(formulas))


def run_bare(folder: Path, questions: Sequence[tuple[str, Mapping[str, object]]]) -> list[Any]:
    """FLOPs and memory by the generated package, in an interpreter without site packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, str(folder)],
        input=json.dumps(questions), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
