from dataclasses import replace

from tests.formula.agent.subjects import SOURCE, measured
from tests.formula.entries import entry, formulas
from torchstone.formula.agent.prompt import Attempt, follow_up, question_text


def test_the_question_holds_all_that_is_known() -> None:
    known = formulas(entry("torch.nn.modules.linear.Linear", "1", "n", "i", "o"), entry("pkg.Unused", "1"))
    text = question_text("pkg.Net", SOURCE, [measured(5)], known, failure="op sequences do not align")

    assert "The class is pkg.Net. Its source, from pkg/net.py:" in text
    assert SOURCE.text in text
    assert "torch.nn.modules.linear.Linear: (n, i, o) and (n, i, o)" in text
    assert "pkg.Unused" not in text
    assert '{"parameters": {"n": 5}, "flops": 15, "reads": 10, "writes": 20}' in text
    assert "op sequences do not align" in text


def test_the_configuration_is_shown_where_there_is_one() -> None:
    configured = replace(SOURCE, config="class NetConfig: pass")

    assert "class NetConfig: pass" in question_text("pkg.Net", configured, [], formulas())
    assert "configuration" not in question_text("pkg.Net", SOURCE, [], formulas())


def test_what_is_not_known_is_left_out() -> None:
    text = question_text("pkg.Net", SOURCE, [], formulas())

    assert "could not be derived" not in text
    assert "Modules whose formulas are known" not in text


def test_the_next_question_holds_every_answer_and_its_problem() -> None:
    text = follow_up("the question", [Attempt(answer="A", problem="wrong"), Attempt(answer="B", problem="worse")])

    assert text.index("the question") < text.index("A") < text.index("wrong") < text.index("B") < text.index("worse")
    assert follow_up("the question", []) == "the question"
