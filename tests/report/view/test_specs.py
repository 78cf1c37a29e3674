from tests.report.traces import spec
from torchstone.report.view.modules import show_specs


def test_equal_tensors_in_a_row_are_counted() -> None:
    cache = [spec(2, 3)] * 64

    assert show_specs([spec(1), *cache]) == "float32[1], 64 \u00d7 float32[2, 3]"


def test_the_order_is_kept() -> None:
    assert show_specs([spec(1), spec(2), spec(1)]) == "float32[1], float32[2], float32[1]"
    assert show_specs([]) == ""
