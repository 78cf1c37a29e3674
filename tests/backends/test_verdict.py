from torchstone.backends import verdict
from torchstone.numerics.verdict import judge


def test_backend_authors_find_the_judge_that_check_and_sweep_use() -> None:
    assert verdict.judge is judge
