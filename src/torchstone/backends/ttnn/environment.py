"""An environment with ttnn: made from PyPI, with a stand-in for the kernel compiler where none is installed.

Kernels never run on a mock device, but ttnn builds them all the same, with SFPI, Tenstorrent's RISC-V compiler. Where
that is installed it is used. Where it is not, a shell script of 40 lines takes its place; it links one small program
with Debian's RISC-V compiler. With real devices the real compiler is needed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from torchstone.errors import InputError
from torchstone.record.ttnn_verdict import TtnnEnvironment

TTNN = "ttnn==0.81.1"
TORCH = "torch==2.9.0"  # the first of 3.12 that ttnn's tracer was tried with; only tracing needs torch
_ALWAYS = ("numpy<2",)
PYTHONS = ("3.12", "3.10")  # ttnn has wheels for these alone
VARIABLE = "TORCHSTONE_TTNN"  # the folder of the environment
_RISCV = "riscv64-unknown-elf-gcc"
_RISCV_PACKAGE = "gcc-riscv64-unknown-elf"
_COMPILER = Path("runtime/sfpi/compiler")
_SYSTEM_COMPILER = Path("/opt/tenstorrent/sfpi/compiler/bin/riscv-tt-elf-g++")
_PROGRAM = "riscv-tt-elf-g++"
_STAND_IN = Path(__file__).with_name("stand_in")
_MARK = "torchstone: a stand-in"
_FOR_STAND_IN = "15.1.0"  # the gcc that SFPI is made of; ttnn compares the release in brackets
_LAST_WORDS = 500
_ABOUT = """
import importlib.metadata, importlib.util, json, platform, sys
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return ""
spec = importlib.util.find_spec("ttnn")
where = "" if spec is None else list(spec.submodule_search_locations or [""])[0]
print(json.dumps({"python": sys.executable, "python_version": platform.python_version(), "ttnn_folder": where,
    "ttnn": version("ttnn"), "torch": version("torch"), "numpy": version("numpy")}))
"""

Say = Callable[[str], None]


# --- Which environment ---


def default_folder() -> Path:
    """Where `torchstone ttnn setup` puts the environment: $TORCHSTONE_TTNN, or a folder of the user's cache."""
    given = os.environ.get(VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.path.expanduser(given)) if given else cache / "torchstone" / "ttnn"  # noqa: PTH111 - it leaves an unknown user as it is


def interpreter_of(place: str) -> str:
    """The interpreter of an environment: a folder, the path of an interpreter, or "" for the one `setup` makes."""
    folder = Path(os.path.expanduser(place)) if place else default_folder()  # noqa: PTH111 - it leaves an unknown user as it is
    if folder.is_dir():
        found = folder / "bin" / "python"
        if not found.exists():
            msg = f"{folder} has no bin/python: run `torchstone ttnn setup --dir {folder}`, or name another environment"
            raise InputError(msg)
        return str(found)
    if not place:
        msg = f"there is no environment with ttnn in {folder}; run `torchstone ttnn setup`, or name one with --python"
        raise InputError(msg)
    return place


def kernel_cache(python: str) -> str:
    """Where the kernels of an environment are kept: beside its interpreter, where that can be written to."""
    home = Path(python).absolute().parent.parent
    if os.access(home, os.W_OK) and (home / "pyvenv.cfg").exists():
        return str(home / "kernels")
    return str(default_folder().parent / "ttnn-kernels")


def describe_environment(python: str) -> TtnnEnvironment:
    """Ask an interpreter for its versions; nothing of ttnn is imported."""
    try:
        done = subprocess.run([python, "-c", _ABOUT], capture_output=True, text=True, check=False, timeout=120)  # noqa: S603 - the user's interpreter
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{python} cannot be run: {error}; give the path of a Python interpreter or of its environment"
        raise InputError(msg) from error
    if done.returncode:
        msg = f"{python} could not say what it has: {done.stderr.strip()[-_LAST_WORDS:]}"
        raise InputError(msg)
    about = json.loads(done.stdout)
    devices = len(list(Path("/dev/tenstorrent").glob("*"))) if Path("/dev/tenstorrent").is_dir() else 0
    return TtnnEnvironment(**about, compiler=compiler_of(about["ttnn_folder"]), devices=devices)


def compiler_of(ttnn_folder: str) -> str:
    """Which compiler ttnn will find: real, stand-in or none."""
    inside = Path(ttnn_folder) / _COMPILER / "bin" / _PROGRAM
    if ttnn_folder and inside.is_file():
        return "stand-in" if _is_stand_in(inside) else "real"
    return "real" if _SYSTEM_COMPILER.exists() else "none"


def _is_stand_in(program: Path) -> bool:
    with program.open("rb") as file:
        return _MARK.encode() in file.read(400)


# --- Making one ---


def set_up(
    folder: Path, *, python: str = PYTHONS[0], version: str = "", with_torch: bool = True, say: Say = print
) -> TtnnEnvironment:
    """Make an environment with ttnn in a folder, or complete the one that is there; `say` gets a line for each step."""
    interpreter = folder / "bin" / "python"
    if interpreter.exists():
        say(f"{folder}: is there already")
    else:
        base = _find_python(python)
        say(f"{folder}: a new environment of {base}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([base, "-m", "venv", str(folder)], f"cannot make an environment in {folder}")
    wanted = [f"ttnn=={version}" if version else TTNN, *_ALWAYS, *([TORCH, "pytest"] if with_torch else [])]
    say(f"installing {', '.join(wanted)}" + (" (about 7 GB, for tracing)" if with_torch else " (about 300 MB)"))
    pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *wanted]
    _run(pip, "pip could not install ttnn")
    about = describe_environment(str(interpreter))
    if about.compiler == "none":
        _add_stand_in(Path(about.ttnn_folder), say)
    else:
        say(f"kernel compiler: {'the real one' if about.compiler == 'real' else 'the stand-in'} is there; left alone")
    return describe_environment(str(interpreter))


def _find_python(wanted: str) -> str:
    """An interpreter of a version such as 3.12, or the one of a path."""
    if "/" in wanted or shutil.which(wanted):
        return wanted
    if wanted not in PYTHONS:
        msg = (
            f"ttnn has wheels for Python {' and '.join(PYTHONS)} alone, not for {wanted!r}; give one of them or a path"
        )
        raise InputError(msg)
    if sys.version_info[:2] == tuple(map(int, wanted.split("."))):
        return sys.executable
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{wanted}.*/bin/python"))
    found = str(pyenv[-1]) if pyenv else shutil.which(f"python{wanted}")
    if found is None:
        msg = f"there is no Python {wanted} here; install one (pyenv install {wanted}), or give its path with --python"
        raise InputError(msg)
    return found


def _run(command: Sequence[str], failure: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own commands
    except OSError as error:
        msg = f"{failure}: {error.strerror or error}"
        raise InputError(msg) from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[-_LAST_WORDS:]
        msg = f"{failure}: {words or f'exit code {done.returncode}'}"
        raise InputError(msg)


def _add_stand_in(ttnn_folder: Path, say: Say) -> None:
    release = (ttnn_folder / "tt_metal" / "sfpi-version").read_text(encoding="utf-8")
    found = {name: re.search(rf"sfpi_{name}='([^']*)'", release) for name in ("version", "build")}
    if any(one is None for one in found.values()):
        msg = f"{ttnn_folder}/tt_metal/sfpi-version does not name a release; install SFPI itself"
        raise InputError(msg)
    version, build = (one[1] for one in found.values() if one is not None)
    _require_riscv(say)
    home = ttnn_folder / _COMPILER
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "version").write_text(
        f"{_PROGRAM} (tenstorrent/sfpi:{version}[{build}]) {_FOR_STAND_IN}\n", encoding="utf-8"
    )
    shutil.copy(_STAND_IN / "kernel.c", home / "kernel.c")
    shutil.copy(_STAND_IN / _PROGRAM, home / "bin" / _PROGRAM)
    (home / "bin" / _PROGRAM).chmod(0o755)
    say(f"kernel compiler: a stand-in for SFPI {version} in {home}; it is good for mock devices alone")


def _require_riscv(say: Say) -> None:
    if shutil.which(_RISCV):
        return
    line = f"apt-get install -y --no-install-recommends {_RISCV_PACKAGE}"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        msg = f"the stand-in for the kernel compiler needs {_RISCV}: run `sudo {line}`, then this command again"
        raise InputError(msg)
    say(f"installing {_RISCV_PACKAGE} with apt-get")
    _run(["apt-get", "update", "--quiet"], "apt-get could not update its lists")
    _run(line.split(), f"apt-get could not install {_RISCV_PACKAGE}")
