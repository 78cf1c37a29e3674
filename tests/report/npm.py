"""Packages that only checks of the page need: fetched once into .cache/, never part of torchstone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "js"
CACHE = ROOT / ".cache" / "npm"


def absent(reason: str) -> None:
    """End the test: a failure where everything must be checked, a skip with its reason elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def node_modules() -> Path:
    """The folder with TypeScript and axe-core."""
    wanted = (SCRIPTS / "package.json").read_bytes()
    copy = CACHE / "package.json"
    if not (copy.is_file() and copy.read_bytes() == wanted and (CACHE / "node_modules" / "axe-core").is_dir()):
        npm = shutil.which("npm")
        if npm is None:
            absent("npm is not installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            copy.unlink()
            absent(f"npm could not fetch the checkers: {done.stderr[-300:]}")
    return CACHE / "node_modules"
