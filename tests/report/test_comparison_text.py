import json
import re

import msgspec

from torchstone.record.reference import (
    Comparison,
    Errors,
    MatchedBy,
    NoiseOfTensor,
    Role,
    SetupCheck,
    Status,
    TensorVerdict,
    Tolerance,
)
from torchstone.report.json_document import comparison_document
from torchstone.report.reference_text import comparison_text, judged_by_text


def errors(**more: object) -> Errors:
    known: dict[str, object] = {
        "pcc": 0.5, "pcc_reason": "", "cosine": 0.25, "max_abs": 1.5, "max_rel": None, "relative_l2": 0.75,
        "allclose": False, "equal": False, "compared": 3,
    }  # fmt: skip
    return Errors(**(known | more))  # type: ignore[arg-type]


def verdict(name: str, status: Status, found: Errors | None = None) -> TensorVerdict:
    tolerance = None if found is None else Tolerance(pcc=0.99, relative_l2=0.28, rtol=1e-6, atol=1e-5)
    return TensorVerdict(
        name=name, role=Role.OUTPUT, module="layers.1", status=status, shape=(3,), dtype="float32", errors=found,
        tolerance=tolerance,
    )  # fmt: skip


def comparison(*verdicts: TensorVerdict, **more: object) -> Comparison:
    return Comparison(model="net", candidate="a.npz", verdicts=verdicts, **more)  # type: ignore[arg-type]


def test_a_line_shows_every_number_and_what_does_not_exist() -> None:
    text = comparison_text(comparison(verdict("outputs", Status.WRONG_VALUES, errors(nan=(0, 2))), passed=False))

    (line,) = (line for line in text.splitlines() if line.startswith("outputs"))
    assert re.split(r"\s{2,}", line)[1:] == [
        "wrong values", "-", "0.500000", "0.250000", "1.5", "none", "0.75", "no", "0, 2",
    ]  # fmt: skip


def test_the_noise_multiple_and_the_rule_stand_beside_the_metrics() -> None:
    noise = NoiseOfTensor(
        format="bfloat16", basis="measured", measure="RMS", relative_error=0.02, relative_noise=0.01
    )  # fmt: skip
    judged = msgspec.structs.replace(
        verdict("outputs", Status.SUSPICIOUS, errors()), tolerance=None, noise_multiple=2.14, noise=noise
    )

    text = comparison_text(comparison(judged, passed=True))

    assert "2.14" in text
    assert "1 by the noise of bfloat16 (measured)" in text
    assert "docs/how-it-works/verdicts.md" in text


def test_the_verdict_names_the_first_wrong_tensor_and_its_module() -> None:
    found = comparison(passed=False, first_wrong="modules/layers.1/outputs", first_wrong_module="layers.1")

    assert comparison_text(found).endswith("wrong, first at modules/layers.1/outputs (layers.1)")


def test_what_to_look_at_next_is_the_last_line() -> None:
    found = comparison(passed=False, first_wrong="outputs", first_wrong_module="", next_step="look at the ops")

    assert comparison_text(found).splitlines()[-1].split(maxsplit=1) == ["next", "look at the ops"]


def test_a_comparison_of_nothing_has_no_good_verdict() -> None:
    assert comparison_text(comparison(passed=False)).endswith("not passed; see the notes")


def test_what_was_not_given_is_counted_and_not_listed() -> None:
    found = comparison(verdict("a", Status.PASSED, errors()), verdict("b", Status.NOT_GIVEN), passed=True)

    text = comparison_text(found)

    assert "1 passed, 1 not given" in text
    assert not any(line.startswith("b ") for line in text.splitlines())


def test_only_wrong_leaves_out_what_passed() -> None:
    found = comparison(verdict("a", Status.PASSED, errors()), verdict("b", Status.MISSING), passed=False)

    lines = comparison_text(found, only_wrong=True).splitlines()

    assert not any(line.startswith("a ") for line in lines)
    assert any(line.startswith("b ") for line in lines)


def test_unknown_names_are_told_and_many_are_counted() -> None:
    text = comparison_text(comparison(passed=True, unknown=tuple(f"n{number}" for number in range(8))))

    assert "n0, n1, n2, n3, n4 and 3 more: not in the golden data" in text


def test_each_tolerance_is_told_once() -> None:
    verdicts = [verdict("a", Status.PASSED, errors()), verdict("b", Status.PASSED, errors())]

    assert judged_by_text(verdicts).startswith("2 by tolerance: PCC >= 0.99")
    assert judged_by_text(verdicts).count("PCC >= 0.99") == 1
    assert judged_by_text([]) == "nothing was compared"


def test_the_noise_that_decided_is_named_with_the_multiple_of_each_tensor() -> None:
    about = {"measure": "RMS", "relative_error": 0.2, "relative_noise": 0.02}
    noise = NoiseOfTensor(format="bfloat16", basis="measured", **about)  # type: ignore[arg-type]
    equal = NoiseOfTensor(format="float32", basis="equal bits", **about)  # type: ignore[arg-type]
    judged = [
        msgspec.structs.replace(verdict(name, Status.PASSED, errors()), tolerance=None, noise=one, noise_multiple=9.6)
        for name, one in (("a", noise), ("b", noise), ("c", equal))
    ]

    assert judged_by_text(judged) == "2 by the noise of bfloat16 (measured); 1 equal bit for bit"
    (line,) = (line for line in comparison_text(comparison(*judged, passed=True)).splitlines() if line[:2] == "a ")
    assert re.split(r"\s{2,}", line)[2] == "9.6"


def test_the_set_up_stands_before_the_first_tensor() -> None:
    setup = (
        SetupCheck(aspect="weights", same=False, detail="the port has other weights for 3 tensors", decisive=True),
        SetupCheck(aspect="seed", same=None, detail=""),
    )

    lines = comparison_text(comparison(verdict("a", Status.PASSED, errors()), passed=True, setup=setup)).splitlines()

    assert lines[0].split(maxsplit=3) == ["set-up", "weights", "differs", "the port has other weights for 3 tensors"]
    assert lines[1].split()[:3] == ["set-up", "seed", "unknown"]


def test_what_was_not_matched_by_name_is_counted_with_examples() -> None:
    one = msgspec.structs.replace(verdict("a", Status.PASSED, errors()), matched_by=MatchedBy.VALUE, port_name="x")

    text = comparison_text(comparison(one, passed=True, spread="it grows"))

    assert "1 by value (x is a)" in text
    assert re.search(r"^spread +it grows$", text, re.MULTILINE)


def test_an_incomplete_comparison_says_what_is_lacking() -> None:
    lacking = "5 of 6 outputs of the model and its modules were not given"

    assert comparison_text(comparison(passed=False, incomplete=lacking)).endswith(
        f"not passed: {lacking}; what was given passes"
    )
    assert comparison_text(comparison(passed=True, incomplete=lacking)).endswith(
        f"passed, as far as it was given: {lacking}"
    )


def test_the_document_has_the_keys_that_other_programs_rely_on() -> None:
    verdicts = (
        verdict("a", Status.PASSED, errors()),
        verdict("b", Status.WRONG_NON_FINITE, errors(pcc=None)),
        verdict("c", Status.MISSING),
    )
    found = comparison(*verdicts, passed=False, first_wrong="b", first_wrong_module="layers.1")

    document = json.loads(comparison_document(found))

    assert document["schema"] == "torchstone/comparison/1"
    assert (document["passed"], document["first_wrong"], document["first_wrong_tensor"]) == (False, "layers.1", "b")
    assert document["counts"] == {"passed": 1, "wrong NaN or Inf": 1, "missing": 1}
    assert [(one["name"], one["state"], one["pcc"], one["relative_l2"]) for one in document["tensors"]] == [
        ("a", "passed", 0.5, 0.75),
        ("b", "wrong", None, 0.75),
        ("c", "wrong", None, None),
    ]
    assert all(one["noise_multiple"] is None for one in document["tensors"])
