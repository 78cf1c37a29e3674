import pytest

from tests.report.traces import transformer
from torchstone.errors import InputError
from torchstone.reference.make import chosen_modules


def test_nothing_is_kept_unless_asked() -> None:
    assert chosen_modules(transformer(3), "") == ()


def test_all_means_every_called_module_but_the_root() -> None:
    trace = transformer(3)
    called = {trace.modules[number].path for number in trace.module_calls.modules}

    assert set(chosen_modules(trace, "all")) == called - {""}


def test_unique_keeps_one_layer_of_equal_ones() -> None:
    chosen = chosen_modules(transformer(3), "unique")

    assert any("layers.0" in path for path in chosen)
    assert not any("layers.2" in path for path in chosen)


def test_a_pattern_chooses_by_path() -> None:
    chosen = chosen_modules(transformer(3), "*layers.1*")

    assert chosen
    assert all("layers.1" in path for path in chosen)


def test_a_pattern_that_matches_nothing_is_refused_with_a_near_path() -> None:
    with pytest.raises(InputError, match="matches no module that ran; a module that ran is"):
        chosen_modules(transformer(2), "layer")
