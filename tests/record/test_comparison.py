from torchstone.record import codec
from torchstone.record.reference import WRONG, Comparison, Errors, Role, Status, TensorVerdict, Tolerance


def verdict(status: Status) -> TensorVerdict:
    errors = Errors(
        pcc=None, pcc_reason="constant", cosine=1.0, max_abs=0.0, max_rel=None, relative_l2=0.0, allclose=True,
        equal=True, compared=3,
    )  # fmt: skip
    tolerance = Tolerance(pcc=0.99, relative_l2=0.3, rtol=1e-5, atol=1e-5)
    return TensorVerdict(
        name="outputs", role=Role.OUTPUT, module=None, status=status, shape=(3,), dtype="float32", errors=errors,
        tolerance=tolerance,
    )  # fmt: skip


def test_a_comparison_survives_its_file_with_what_is_unknown() -> None:
    found = Comparison(model="net", candidate="a.npz", passed=True, verdicts=(verdict(Status.PASSED),))

    assert codec.decode(codec.encode(found), Comparison, origin="test") == found


def test_every_tensor_is_counted_once() -> None:
    verdicts = tuple(map(verdict, (Status.PASSED, Status.PASSED, Status.MISSING)))

    counts = Comparison(model="net", candidate="a", passed=False, verdicts=verdicts).counts

    assert counts == {"passed": 2, "missing": 1}


def test_only_what_passed_or_could_not_be_judged_for_certain_is_not_wrong() -> None:
    assert set(Status) - WRONG == {Status.PASSED, Status.SUSPICIOUS, Status.NOT_GIVEN, Status.NOT_KEPT}
