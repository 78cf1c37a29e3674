"""The scripts of the page, checked by Node and TypeScript where they are installed; shared vectors."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.report.npm import SCRIPTS, absent, node_modules
from torchstone.report.layout import BOX_PX, ROW_PX
from torchstone.report.page import asset
from torchstone.units import show_bytes, show_count, show_seconds

VECTORS = Path(__file__).parent / "vectors"
NEWEST_OLD_NODE = 20


def node() -> str:
    found = shutil.which("node")
    if found is None:
        absent("node is not installed")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < NEWEST_OLD_NODE:
        absent(f"node {version.strip()} is too old")
    return "node"


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.test.mjs")), ids=lambda path: path.name)
def test_what_the_scripts_compute_is_right(path: Path) -> None:
    done = subprocess.run(
        [node(), "--test", str(path)], capture_output=True, encoding="utf-8", timeout=600, check=False
    )

    assert done.returncode == 0, done.stdout[-4000:]


def test_every_script_is_typed() -> None:
    compiler = node_modules() / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [node(), str(compiler), "-p", str(SCRIPTS)], capture_output=True, encoding="utf-8", timeout=600, check=False
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("kind", "show"), [("bytes", show_bytes), ("count", show_count), ("seconds", show_seconds)])
def test_page_and_terminal_write_numbers_alike(kind: str, show: Callable[[float], str]) -> None:
    for value, text in json.loads((VECTORS / "units.json").read_text(encoding="utf-8"))[kind]:
        assert show(value) == text


def test_boxes_are_drawn_as_large_as_they_were_placed() -> None:
    text = asset("drawing.js")

    assert re.search(rf"const ROW = {ROW_PX};", text)
    assert re.search(rf"const BOX = {BOX_PX};", text)
