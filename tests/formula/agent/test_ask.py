import pytest

from tests.formula.agent.subjects import Scripted, answer, measured, subject
from tests.formula.entries import entry, formulas
from torchstone.errors import FormulaError
from torchstone.formula.agent.ask import Outcome, ask_for_entry
from torchstone.formula.database.compute import compute_flops
from torchstone.record.formula import FormulaEntry, Status


def ask(*answers: str, rounds: int = 3) -> tuple[Outcome, Scripted, list[tuple[int, str]]]:
    provider = Scripted(list(answers))
    rounds_seen: list[tuple[int, str]] = []
    outcome = ask_for_entry(
        subject(), provider, formulas(), rounds=rounds, on_round=lambda *one: rounds_seen.append(one)
    )
    return outcome, provider, rounds_seen


def test_a_right_answer_is_pending_with_its_evidence() -> None:
    outcome, provider, seen = ask(answer())

    assert outcome.entry is not None
    assert outcome.entry.validation.status is Status.PENDING
    assert outcome.entry.validation.validator == "agent (scripted)"
    assert outcome.entry.evidence is not None
    assert (outcome.entry.evidence.points_checked, outcome.entry.evidence.max_error) == (2, "0")
    assert outcome.entry.flop_analysis.thinking_process == "I counted."
    assert outcome.entry.code_location is not None
    assert compute_flops("pkg.Net", n=100, formulas=formulas(outcome.entry)) == 300
    assert (len(provider.questions), seen) == (1, [(1, "")])


def test_what_is_wrong_goes_back_to_the_provider() -> None:
    outcome, provider, seen = ask(answer("4 * ${n}"), answer())

    assert outcome.entry is not None
    problem = "at n=5 the formula gives 20 flops, but 15 were measured (off by 5)"
    assert seen == [(1, problem), (2, "")]
    assert problem in provider.questions[1]
    assert "4 * ${n}" in provider.questions[1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I cannot do that.", "the answer holds no JSON object"),
        ('{"flop_analysis": 3}', "does not have the requested form"),
        (answer("3 * ${m}"), "the parameter m is not declared"),
        (answer("3 *"), "expected a number"),
        (answer("__import__('os')"), "cannot read"),
        (answer("{Unknown}(1)"), "no formula is known for Unknown"),
        (answer("{pkg.Net}(${n})"), "circular dependency"),
        (answer("${n}**${n}**${n}**${n}"), "bits"),
        (answer(reads="3 * ${n}"), "15 reads, but 10 were measured"),
        (answer(writes="0"), "0 writes, but 20 were measured"),
        (answer("15 if ${n} == 5 else 7"), "at n=8 the formula gives 7 flops, but 24"),
    ],
)
def test_a_wrong_answer_is_never_kept(text: str, problem: str) -> None:
    outcome, _, seen = ask(text, text, rounds=2)

    assert outcome.entry is None
    assert len(outcome.attempts) == 2
    assert problem in outcome.attempts[-1].problem
    assert [number for number, _ in seen] == [1, 2]


def test_parameters_that_were_not_measured_need_a_default() -> None:
    text = answer("3 * ${n} + 0 * ${m}").replace('["n"], "formula', '["n", "m"], "formula')
    outcome, _, _ = ask(text, rounds=1)

    assert outcome.attempts[0].problem == "the parameters m were not measured and have no default"


def test_a_nested_call_uses_the_known_formulas() -> None:
    provider = Scripted([answer("{Leaf}(${n}) + ${n}")])
    known = formulas(entry("pkg.Leaf", "2 * ${x}", "x"))
    outcome = ask_for_entry(subject(), provider, known, rounds=1, on_round=lambda *_: None)

    assert outcome.entry is not None


def test_one_point_is_not_enough() -> None:
    with pytest.raises(FormulaError, match=r"pkg\.Net was measured at 1 point; 2 or more are needed"):
        ask_for_entry(subject(points=[measured(5)]), Scripted([]), formulas(), rounds=1, on_round=lambda *_: None)


def test_a_table_of_the_measurements_is_refused_and_hidden_points_stay_hidden() -> None:
    table = "15 if ${n} == 5 else 24 if ${n} == 8 else 7"
    provider = Scripted([answer(table), answer()])

    def refuted(one: FormulaEntry) -> str:
        found = compute_flops("pkg.Net", n=100, formulas=formulas(one))
        return "" if found == 300 else f"at n=100 it gives {found}, but 300 were measured"

    outcome = ask_for_entry(
        subject(), provider, formulas(), rounds=2, on_round=lambda _number, _problem: None, refuted=refuted
    )

    assert outcome.entry is not None
    assert outcome.entry.flop_analysis.formula_template == "3 * ${n}"
    assert "not a table" in provider.questions[1]
    assert "300" not in provider.questions[1]
