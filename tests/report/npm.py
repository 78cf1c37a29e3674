"""Packages that only checks of the page need: fetched once into .cache/, never part of torchstone."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "js"
CACHE = ROOT / ".cache" / "npm"


def absent(reason: str) -> NoReturn:
    """End the test: a failure where everything must be checked, a skip with its reason elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def node_modules() -> Path:
    """The folder with TypeScript, axe-core and KaTeX."""
    wanted = (SCRIPTS / "package.json").read_bytes()
    fetched = CACHE / "fetched.json"  # written last, so that a fetch that was cut off is done again
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run in several processes
        if not (fetched.is_file() and fetched.read_bytes() == wanted):
            (CACHE / "package.json").write_bytes(wanted)
            _fetch()
            fetched.write_bytes(wanted)
    return CACHE / "node_modules"


def _fetch() -> None:
    if shutil.which("npm") is None:
        absent("npm is not installed")
    command = [
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--loglevel=error",
        "--fetch-retries=5",
    ]
    try:
        subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=600, check=True)
    except subprocess.CalledProcessError as error:
        absent(f"npm could not fetch the checkers: {error.stderr[-300:]}")
    except subprocess.TimeoutExpired:
        absent("npm could not fetch the checkers in ten minutes")
