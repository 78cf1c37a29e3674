"""The tutorial about ports in their own names and layouts does what it says."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.programs import ROOT
from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

PAGE = ROOT / "docs" / "tutorials" / "compare-a-port.md"


def test_each_step_gives_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (make, compare) = (shlex.split(text)[1:] for kind, text in blocks if not kind)
    port, wrong, weights = (text for kind, text in blocks if kind == "python")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    assert run([*make, "--quiet"]) == EXIT_FINE
    capsys.readouterr()

    exec(port, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINE
    shown = capsys.readouterr().out
    assert "matches after: drop tile padding, squeeze leading dimensions" in shown
    assert re.search(r"^matched +\d+ by value, \d+ by order", shown, re.MULTILINE)
    assert "split q, k, v" in shown

    exec(wrong, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINDINGS
    shown = capsys.readouterr().out
    assert "wrong even after: drop tile padding" in shown
    assert re.search(r"^spread +first beyond tolerance: bert.encoder.layer.1.attention.self.query", shown, re.MULTILINE)

    exec(weights, names)  # noqa: S102 - the page's own code
    assert run(compare) == EXIT_FINDINGS
    first = capsys.readouterr().out.splitlines()[0]
    assert "the port has other weights for 1 tensor: bert.encoder.layer.1.attention.self.query.weight" in first
