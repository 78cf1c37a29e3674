from fractions import Fraction
from pathlib import Path

import click
import pytest

from torchstone.cli.formula_options import load, read_parameters, read_values
from torchstone.cli.options import Session
from torchstone.formula.parsing import parse


def test_values_are_numbers_or_arithmetic() -> None:
    assert read_values(["B=8", "S=4*1024", "dtype_bytes=1/2"]) == {"B": 8, "S": 4096, "dtype_bytes": Fraction(1, 2)}


def test_parameters_may_depend_on_others() -> None:
    assert read_parameters(["kv=heads // 4"]) == {"kv": parse("heads // 4")}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["B"], "'B' is not of the form PARAMETER=VALUE"),
        (["=3"], "is not of the form PARAMETER=VALUE"),
        (["B=1", "B=2"], "B is given twice"),
        (["B=1+"], "the value of B cannot be read: expected a number"),
        (["B=__import__('os')"], "the value of B cannot be read"),
        (["B=S"], "the value of B depends on S; give a number"),
    ],
)
def test_what_cannot_be_read_is_named(given: list[str], reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        read_values(given)


def test_a_damaged_cache_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path))
    (tmp_path / "module_db.json").write_text("damaged")

    assert load(Session(quiet=True)).get("MLP") is not None
    assert "torchstone: warning: " in capsys.readouterr().err
