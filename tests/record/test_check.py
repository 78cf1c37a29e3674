from tests.check.results import check_result, finding, module
from torchstone.record.check import FAILURES, CheckedModules, CheckResult, Outcome, UnitResult
from torchstone.record.codec import decode, encode
from torchstone.record.unique import UniqueModules


def test_a_result_comes_back_from_its_document() -> None:
    result = check_result(finding())

    assert decode(encode(result), CheckResult, origin="test") == result


def test_the_checked_modules_are_a_document_that_older_readers_read() -> None:
    document = CheckedModules(model="toy", backend="faulty", modules=(module("layers.0", "failed", outcome="wrong"),))

    found = decode(encode(document), UniqueModules, origin="test")

    assert (found.modules[0].id, found.modules[0].status, found.modules[0].outcome) == (
        "mod_layers.0",
        "failed",
        "wrong",
    )


def test_statuses_are_counted() -> None:
    assert check_result(finding()).counts == {"failed": 2, "skipped": 1}


def test_a_check_passes_when_nothing_failed() -> None:
    assert check_result().passed
    assert not check_result(finding()).passed
    assert not check_result(modules=(module("", "ir_export_failed"),)).passed


def test_what_was_not_run_did_not_fail() -> None:
    assert Outcome.NOT_RUN not in FAILURES
    assert not UnitResult(outcome=Outcome.NOT_RUN).failed
    assert UnitResult(outcome=Outcome.CRASHED).failed
