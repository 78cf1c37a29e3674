import pytest

from torchstone.memory.usage import Place, place_of, plain_location


@pytest.mark.parametrize(
    ("location", "place"),
    [
        (
            '"7|Tail[tail]|ReLU[tail.relu]|/x/net.py:106|forward|107|aten__relu"',
            Place("tail.relu", "ReLU", "/x/net.py:107"),
        ),
        ('"7|Net[]|net.py:1|forward|2|aten__add_mean"("child")', Place("", "Net", "net.py:2")),
        ('fused["-1|unknown|unknown|-1|aten__view", "3|Mlp[mlp]|a|b|c"]', Place("mlp", "Mlp", "")),
    ],
)
def test_the_innermost_module_is_found(location: str, place: Place) -> None:
    assert place_of(location) == place


@pytest.mark.parametrize("location", ["unknown", '"add.24"', '"-1|unknown|unknown|-1|aten__view"', '"net.py":9:14'])
def test_a_location_without_modules_has_no_place(location: str) -> None:
    assert place_of(location) is None


def test_a_plain_name_loses_its_quotes() -> None:
    assert plain_location('"add.24"') == "add.24"
    assert plain_location('"a"("b")') == '"a"("b")'
