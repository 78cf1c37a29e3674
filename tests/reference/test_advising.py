import pytest

from torchstone.record.reference import Role, Status, TensorVerdict
from torchstone.reference.next_step import next_step

P, W, N, M = Status.PASSED, Status.WRONG_VALUES, Status.NOT_GIVEN, Status.MISSING


def verdicts(**statuses: Status) -> list[TensorVerdict]:
    """A net of two modules, the second with one inside, in order of execution; what is not named passed."""
    places = {
        "given": ("inputs/x", Role.INPUT, None),
        "stem_in": ("modules/stem/inputs/x", Role.MODULE_INPUT, "stem"),
        "stem_out": ("modules/stem/outputs", Role.MODULE_OUTPUT, "stem"),
        "body_in": ("modules/body/inputs/x", Role.MODULE_INPUT, "body"),
        "inner_out": ("modules/body.inner/outputs", Role.MODULE_OUTPUT, "body.inner"),
        "body_out": ("modules/body/outputs", Role.MODULE_OUTPUT, "body"),
        "out": ("outputs", Role.OUTPUT, None),
    }
    return [
        TensorVerdict(name=name, role=role, module=module, status=statuses.get(key, P), shape=(2,), dtype="float32")
        for key, (name, role, module) in places.items()
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (verdicts(given=W, out=W), "did not run on the golden inputs"),
        (verdicts(stem_out=W, out=W), "the inputs of stem are correct: the error is in this module"),
        (verdicts(stem_in=N, stem_out=W), "were not compared: the error is in stem, or before it"),
        (
            verdicts(body_in=W, body_out=W),
            "inputs of body are wrong already: look at the ops after stem and before it",
        ),
        (
            verdicts(inner_out=W),
            "its inputs were not compared: the error is in body.inner, or after stem and before it",
        ),
        (verdicts(body_out=W), "the compared modules inside it are correct: look at its own ops"),
        (verdicts(inner_out=N, body_out=W), "the inputs of body are correct: the error is in this module"),
        (verdicts(out=W), "the compared modules are correct: look at the ops after body and before the output"),
        (verdicts(out=Status.WRONG_SHAPE), "give outputs the golden shape first"),
        (verdicts(out=Status.WRONG_DTYPE), "save outputs as float32"),
        (verdicts(out=M), "save it as outputs, or accept missing outputs with --partial"),
    ],
)
def test_the_sentence_says_where_to_look(found: list[TensorVerdict], words: str) -> None:
    assert words in next_step(found)


def test_there_is_nothing_to_say_when_nothing_is_wrong() -> None:
    assert next_step(verdicts()) == ""


def test_without_intermediates_the_way_to_get_them_is_told() -> None:
    ends = [one for one in verdicts(out=W) if one.role in (Role.INPUT, Role.OUTPUT)]

    assert "--intermediates all" in next_step(ends)
    not_given = verdicts(stem_in=N, stem_out=N, body_in=N, inner_out=N, body_out=N, out=W)
    assert "save the module outputs of your port, too, as modules/PATH/outputs" in next_step(not_given)
