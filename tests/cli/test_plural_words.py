"""What commands say about a model of one module and one op: no "1 modules"."""

import html
import re
from pathlib import Path

import pytest

from torchstone.cli.main import run
from torchstone.errors import EXIT_FINDINGS, EXIT_FINE

NET = """
import torch

def one_op():
    return torch.nn.ReLU(), torch.ones(1)
"""
_ONE = re.compile(r"(?<![\d.,:x-])1 (?:(?:op|unique|distinct|golden|new|more) )*(?P<word>[a-z]{2,}s)\b")
_SINGULAR = {
    "is",
    "has",
    "was",
    "pass",
    "class",
    "process",
    "passes",
    "fails",
    "agrees",
    "as",
    "this",
    "always",
    "its",
    "success",
}


def mistakes(text: str) -> list[str]:
    """Numbers of 1 with a noun in the plural."""
    return [found[0] for found in _ONE.finditer(text) if found["word"] not in _SINGULAR]


def test_mistakes_are_found() -> None:
    assert mistakes("1 modules, 1 op calls; 11 modules, 1 module, 0.1 modules, 1 pass") == ["1 modules", "1 op calls"]


@pytest.mark.torch
def test_no_command_uses_a_plural_for_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "net.py"
    code.write_text(NET, encoding="utf-8")
    model, database, sweep = f"{code}::one_op", str(tmp_path / "one.db"), str(tmp_path / "sweep")
    commands = [
        ["inspect", model, "--operators"],
        ["inspect", model, "--dir", str(tmp_path / "inspect")],
        *(["cost", model, "--by", by] for by in ("module", "op", "class", "line", "formula")),
        ["cost", model, "--hardware", "n150", "--dir", str(tmp_path / "cost")],
        ["check", model, "--backend", "eager", "--dir", str(tmp_path / "check")],
        ["reference", model, "--dir", str(tmp_path / "reference"), "--intermediates", "all"],
        ["diff", str(tmp_path / "cost"), str(tmp_path / "inspect"), "--dir", str(tmp_path / "diff")],
        ["trace", model, "--db", database],
        ["ops", "--db", database],
        ["ops", "relu", "--db", database],
        ["ops", "coverage", "one_op", "--backend", "eager", "--db", database],
        ["db", "info", "--db", database],
        ["db", "verify", "--db", database],
        ["sweep", "generate", "--all", "--db", database, "--dir", sweep],
        ["sweep", "run", "--dir", sweep, "--backend", "eager", "--db", database],
        ["formula", "list", "--filter", "torch.nn.ReLU"],
        ["cache", "info"],
    ]
    found = {}
    for words in commands:
        assert run(words) in (EXIT_FINE, EXIT_FINDINGS), capsys.readouterr().err
        said = capsys.readouterr()
        found[" ".join(words)] = mistakes(said.out + said.err)
    for page in tmp_path.glob("*/*.html"):
        found[page.parent.name] = mistakes(re.sub(r"<[^>]+>", " ", html.unescape(page.read_text(encoding="utf-8"))))
    for page in tmp_path.glob("*/*.md"):
        found[str(page)] = mistakes(page.read_text(encoding="utf-8"))
    assert {name: texts for name, texts in found.items() if texts} == {}
