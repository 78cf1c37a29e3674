from importlib.util import find_spec

import pytest

from torchstone.cli.options import Session
from torchstone.cli.sweep_options import hint, opened_executor, unknown_name
from torchstone.errors import MissingExtraError
from torchstone.record.task import Environment, Limits


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert "did you mean aten.mm.default" in str(unknown_name("op", "aten.mm", ["aten.mm.default"], "x.db"))
    assert "it is empty" in str(unknown_name("op", "aten.mm", [], "x.db"))


def test_hints_are_for_those_who_want_them(capsys: pytest.CaptureFixture[str]) -> None:
    hint(Session(quiet=True), "unheard")
    hint(Session(), "heard")

    assert capsys.readouterr().err == "heard\n"


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_without_ray_says_what_to_install() -> None:
    environment = Environment(python="python")

    with (
        pytest.raises(MissingExtraError, match=r"torchstone\[ray\]"),
        opened_executor(environment, jobs=1, limits=Limits(), given={"executor": "ray"}),
    ):
        pass
