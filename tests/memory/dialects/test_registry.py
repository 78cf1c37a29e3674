import pytest

from torchstone.errors import InputError
from torchstone.memory.dialects.registry import dialect_named, dialects


def test_the_built_in_format_is_known_by_name() -> None:
    assert dialect_named("tt-runtime").name == "tt-runtime"
    assert next(iter(dialects())) == "tt-runtime"


def test_an_unknown_format_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="tt-runtime"):
        dialect_named("nope")
