import json
import os
import subprocess
import sys

from tests.architecture.repository import PACKAGE, module_of, source_files

HEAVY = ("torch", "transformers", "numpy")
NEEDS_TORCH = ("models", "capture", "reference", "backends", "numerics")
ALSO_NEEDS_TORCH = (
    "torchstone.cost.cpu_limits",  # measures this machine with torch, when asked to
    "torchstone.cost.peers",  # runs other counters on the model
    "torchstone.formula.derive.samples",  # formulas are derived from runs
    "torchstone.formula.derive.library",
    "torchstone.formula.derive.boundaries",
    "torchstone.formula.derive.recipes",
    "torchstone.formula.derive.derive_recipe",
    "torchstone.formula.derive.derive_model",
    "torchstone.formula.derive.tied_weights",
    "torchstone.formula.derive.symbolic_run",
    "torchstone.formula.derive.validate_library",  # and compared with runs
)
CHILD_SIDES = ("torchstone.check.child.", "torchstone.sweep.child.")  # packages that run in the backend's environment
PROMISED_START_S = 0.4
TRIES = 5

_REPORT_HEAVY = f"import json, sys; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"


def needs_torch(module: str) -> bool:
    """Whether a module of a folder that starts without torch may import it."""
    return module in ALSO_NEEDS_TORCH or module.startswith(CHILD_SIDES)


def heavy_after(program: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded after a program."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\n{_REPORT_HEAVY}"], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def best_time_s(*arguments: str) -> float:
    """The least time that a processor worked for it: it hardly depends on what else the machine has to do."""
    times = []
    for _ in range(TRIES):
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def test_the_command_line_starts_without_torch() -> None:
    assert heavy_after("import torchstone.cli.main") == []


def test_help_needs_no_torch() -> None:
    assert heavy_after("from torchstone.cli.main import run; run(['--help'])") == []


def test_the_help_of_every_command_needs_no_torch() -> None:
    program = "from torchstone.cli.main import COMMANDS, run\nfor name in COMMANDS: run([name, '--help'])"

    assert heavy_after(program) == []


def test_the_zoo_is_listed_without_torch() -> None:
    assert heavy_after("from torchstone.cli.main import run; run(['models', '--json'])") == []


def test_every_module_of_a_torch_free_folder_is_imported_without_torch() -> None:
    light = [module_of(path) for path in source_files() if path.relative_to(PACKAGE).parts[0] not in NEEDS_TORCH]
    imports = "\n".join(f"import {name}" for name in light if not needs_torch(name))

    assert len(light) > 40
    assert heavy_after(imports) == []


def test_help_answers_within_the_promised_time() -> None:
    """0.4 s are promised; a machine on which a bare interpreter is slow gets more by the same factor."""
    bare_s = best_time_s("-c", "pass")
    help_s = best_time_s("-c", "from torchstone.cli.main import main; main()", "--help")

    assert help_s < max(PROMISED_START_S, 12 * bare_s), f"{help_s:.2f} s; a bare interpreter takes {bare_s:.2f} s"
