from torchstone.record.config import ModelCoverage, OpCoverage

MM = OpCoverage(op="mm", configurations=3, passed=1, failed=1, calls=10, passed_calls=4, failed_calls=5)
ADD = OpCoverage(op="add", configurations=1, passed=1, failed=0, calls=2, passed_calls=2, failed_calls=0)


def test_a_model_is_the_sum_of_its_ops() -> None:
    coverage = ModelCoverage(models=("net",), backend="eager", ops=(MM, ADD), uncounted=0)

    assert (coverage.calls, coverage.passed_calls, coverage.failed_calls) == (12, 6, 5)
    assert (coverage.configurations, coverage.passed) == (4, 2)
    assert coverage.share == 0.5


def test_without_counted_calls_there_is_no_share() -> None:
    assert ModelCoverage(models=("net",), backend="eager", ops=(), uncounted=3).share is None
