from tests.sweep.builders import tensor
from torchstone.record.chain import Step, StepResult, configuration_of, cut, is_chain, result_of_step, steps_of
from torchstone.record.config import Configuration, TensorFacts, tensors_of
from torchstone.record.value import Argument, Value, tensors_in


def step(op: str, **arguments: Value) -> Step:
    return Step(op=op, arguments=tuple(Argument(name=name, value=value) for name, value in arguments.items()))


def residual() -> Configuration:
    """exp(x) -> mm(., w) -> add(., x): the input x is read twice."""
    return configuration_of(
        [
            step("aten.exp.default", x=tensor(2, 2)),
            step("aten.mm.default", x=result_of_step(0, "0"), w=tensor(2, 2)),
            step("aten.add.Tensor", x=result_of_step(1, "0"), y=tensor(2, 2), alpha=1),
        ],
        aliases=((0, 2),),
    )


def results() -> list[StepResult]:
    facts = TensorFacts(tensor=0, lowest=1.0, highest=3.0)
    return [StepResult(step=number, rest="0", spec=tensor(2, 2), facts=facts) for number in range(3)]


def test_a_chain_is_a_configuration_with_a_key_and_tensors() -> None:
    chain = residual()

    assert chain.op == "aten.exp.default > aten.mm.default > aten.add.Tensor"
    assert is_chain(chain.op)
    assert [one.op for one in steps_of(chain)] == ["aten.exp.default", "aten.mm.default", "aten.add.Tensor"]
    assert len(tensors_of(chain)) == 3
    assert chain.key != configuration_of(steps_of(chain)[::-1]).key


def test_the_steps_of_a_single_call_are_the_call() -> None:
    alone = configuration_of([step("aten.exp.default", x=tensor(3))])

    assert not is_chain(alone.op)
    assert configuration_of(steps_of(alone)) == alone


def test_the_whole_window_is_the_chain() -> None:
    facts = (TensorFacts(tensor=1, lowest=0.0, highest=1.0),)

    assert cut(residual(), facts, range(3), results()) == (residual(), facts)


def test_the_end_of_a_chain_gets_the_results_of_what_was_cut_off_as_inputs() -> None:
    facts = (TensorFacts(tensor=0, highest=5.0), TensorFacts(tensor=1, highest=6.0), TensorFacts(tensor=2, highest=7.0))

    part, known = cut(residual(), facts, range(1, 3), results())

    assert part.op == "aten.mm.default > aten.add.Tensor"
    assert part.aliases == ()  # the first reader of x was cut off
    assert [one.highest for one in known] == [3.0, 6.0, 7.0]
    assert [one.tensor for one in known] == [0, 1, 2]


def test_one_step_of_a_chain_is_an_ordinary_call() -> None:
    part, known = cut(residual(), (), range(2, 3), results())

    assert part.op == "aten.add.Tensor"
    assert [len(tensors_in(one.value)) for one in part.arguments] == [1, 1, 0]
    assert [one.tensor for one in known] == [0]
