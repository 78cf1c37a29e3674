import pytest

from tests.memory.log_generator.demo import failing_log, healthy_log
from torchstone.memory.folder import HEALTHY, OUT_OF_MEMORY, demo_log
from torchstone.memory.out_of_memory import diagnose
from torchstone.memory.read_log import parse_log


def test_the_sample_logs_are_those_of_the_generator() -> None:
    assert demo_log(HEALTHY) == healthy_log(), "run: python -m tests.memory.log_generator.demo"
    assert demo_log(OUT_OF_MEMORY) == failing_log(), "run: python -m tests.memory.log_generator.demo"


@pytest.mark.parametrize("name", [HEALTHY, OUT_OF_MEMORY])
def test_nothing_is_missing_from_a_sample_log(name: str) -> None:
    assert diagnose(parse_log(demo_log(name).splitlines())) == ()
