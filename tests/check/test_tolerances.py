from pathlib import Path

import pytest

from torchstone.check.settings import read_tolerances
from torchstone.errors import InputError


def test_without_a_word_the_noise_decides() -> None:
    assert read_tolerances(()).for_names(("x",)) == {}


def test_a_number_is_for_all() -> None:
    assert read_tolerances(("0.9",)).for_names(("x",)) == {"pcc": 0.9}


def test_an_element_type_and_a_pattern_have_their_own() -> None:
    found = read_tolerances(("bfloat16=0.97", "layers.*=0.5"))

    assert found.for_names(("layers.3.mlp",)) == {"pcc": 0.5, "by_dtype": {"bfloat16": {"pcc": 0.97}}}
    assert found.for_names(("head",)) == {"by_dtype": {"bfloat16": {"pcc": 0.97}}}


def test_a_later_pattern_wins() -> None:
    assert read_tolerances(("*=0.5", "head=0.7")).for_names(("head",))["pcc"] == 0.7


def test_a_file_says_more_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "tolerances.toml"
    file.write_text('pcc = 0.98\nrtol = 1e-3\n[dtype.float16]\npcc = 0.9\n[pattern."*.mlp"]\natol = 0.1\n')

    found = read_tolerances(("0.95",), file)

    assert found.for_names(("a.mlp",)) == {
        "pcc": 0.95,
        "rtol": 1e-3,
        "atol": 0.1,
        "by_dtype": {"float16": {"pcc": 0.9}},
    }


@pytest.mark.parametrize("text", ["many", "bfloat16=", "2", "layers=-3"])
def test_what_is_no_pcc_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--pcc"):
        read_tolerances((text,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pcc = [", "not a TOML"),
        ("pzz = 1", "unknown tolerance"),
        ("pcc = true", "must be a number"),
        ("[dtype.number]\npcc = 1", "unknown element type"),
        ("[pattern]\nx = 1", "write tolerances as"),
        ("pcc = nan", "pcc must be a number"),
        ("rtol = inf", "rtol must be a number"),
        ("dtype = 5", "write tolerances as name = number"),
        ("pattern = ['a']", "write tolerances as name = number"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "tolerances.toml"
    file.write_text(text)

    with pytest.raises(InputError, match=words):
        read_tolerances((), file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_tolerances((), tmp_path / "nothing.toml")
