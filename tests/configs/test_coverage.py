from tests.store.builders import at, relu, seen
from torchstone.configs.families import coverage_of
from torchstone.record.config import ModelCoverage, OpCoverage
from torchstone.record.vector import Status
from torchstone.report.ops_text import untested_text

TANH = "aten.tanh.default"
SEEN = (
    seen(relu(1), at(count=5), at("other.py", model="other", count=100)),
    seen(relu(2), at(count=2), at(run="2", count=1)),
    seen(relu(3), at(count=None)),
    seen(relu(4, op=TANH), at(count=4)),
)
STATUSES = {relu(1).key: Status.PASS, relu(2).key: Status.FAIL_CRASH_HANG}


def test_calls_of_the_model_are_shared_out_by_how_their_configurations_ended() -> None:
    assert coverage_of(SEEN, STATUSES, models=("net",), backend="eager") == ModelCoverage(
        models=("net",),
        backend="eager",
        ops=(
            OpCoverage(
                op=TANH, configurations=1, passed=0, failed=0, calls=4, passed_calls=0, failed_calls=0,
                models=1, untested_models=1,
            ),
            OpCoverage(
                op="aten.relu.default", configurations=3, passed=1, failed=1, calls=8, passed_calls=5, failed_calls=3,
                models=1, untested_models=1,
            ),
        ),
        uncounted=1,
    )  # fmt: skip


def test_a_failure_that_was_expected_is_not_covered() -> None:
    (op,) = coverage_of(SEEN[:1], {relu(1).key: Status.XFAIL}, models=("net",), backend="eager").ops

    assert (op.passed, op.failed) == (0, 1)


def test_nothing_run_is_nothing_covered() -> None:
    coverage = coverage_of(SEEN, {}, models=("net", "other"), backend="eager")

    assert (coverage.share, coverage.calls) == (0.0, 112)


def test_an_op_that_nothing_tested_is_listed_with_the_models_that_use_it() -> None:
    coverage = coverage_of(SEEN, {relu(2).key: Status.PASS}, models=("net", "other"), backend="eager")

    assert {op.op: (op.models, op.untested_models) for op in coverage.ops} == {
        "aten.relu.default": (2, 2),
        TANH: (1, 1),
    }
    shown = untested_text(coverage, top=1).splitlines()
    assert shown[3].split() == ["aten.relu.default", "2", "2", "105"]
    assert shown[-1] == "1 more op (--top)"
