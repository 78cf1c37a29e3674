import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formula.agent.subjects import answer
from torchstone.errors import FormulaError
from torchstone.formula.agent.prompt import read_answer


def test_the_answer_is_found_between_words() -> None:
    found = read_answer('A set {1, 2} and {} and {"x": 1} first.\n' + answer() + " {more}")

    assert found.flop_analysis.formula_template == "3 * ${n}"
    assert found.memory_analysis.writes_template == "4 * ${n}"


def test_an_answer_too_long_to_be_one_is_refused() -> None:
    with pytest.raises(FormulaError, match="more than 1000000"):
        read_answer("{" * 1_000_001)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"flop_analysis"', "{" * 3000, '{"memory_analysis": {}}'])
def test_what_holds_no_answer_is_refused(text: str) -> None:
    with pytest.raises(FormulaError, match="no JSON object with the key flop_analysis"):
        read_answer(text)


@given(st.text(alphabet='{}[]":,flop_analysis1 ', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        read_answer(text)
