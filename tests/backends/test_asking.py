import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchstone.backends import lookup_child

SCRIPT = Path(lookup_child.__file__)


def answer_to(request: dict[str, Any], *, flags: tuple[str, ...] = ("-I", "-S")) -> dict[str, Any]:
    """What the script says in an interpreter that knows neither torchstone nor torch."""
    reading, writing = os.pipe()
    subprocess.run(
        [sys.executable, *flags, str(SCRIPT), str(writing), json.dumps(request)],
        pass_fds=(writing,), check=True, timeout=600, cwd="/",
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        document: dict[str, Any] = json.loads(pipe.read())
    return document


def test_an_environment_with_nothing_installed_can_still_be_asked() -> None:
    document = answer_to({"specs": None})

    first = document["backends"][0]
    assert (first["name"], first["origin"], first["usable"]) == ("eager", "built in", False)
    assert first["reason"] == "torch not installed"
    assert document["python_version"] == ".".join(map(str, sys.version_info[:3]))


def test_a_backend_that_raises_is_told_and_the_others_are_not_harmed(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n", encoding="utf-8")

    document = answer_to({"specs": [f"{tmp_path}/bad.py::Bad", "eager"]})

    bad, eager = document["backends"]
    assert (bad["origin"], bad["usable"]) == ("file", False)
    assert bad["reason"] == "ZeroDivisionError: division by zero"
    assert eager["reason"] == "torch not installed"
