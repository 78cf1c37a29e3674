import pytest

from torchstone.cli.options import Session
from torchstone.cli.sweep_options import hint, unknown_name


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert "did you mean aten.mm.default" in str(unknown_name("op", "aten.mm", ["aten.mm.default"], "x.db"))
    assert "it is empty" in str(unknown_name("op", "aten.mm", [], "x.db"))


def test_hints_are_for_those_who_want_them(capsys: pytest.CaptureFixture[str]) -> None:
    hint(Session(quiet=True), "unheard")
    hint(Session(), "heard")

    assert capsys.readouterr().err == "heard\n"
