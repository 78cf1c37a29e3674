"""The Python of the page on isolation, run as it stands."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-it-works" / "isolation.md"


def test_the_example_prints_an_answer_and_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    exec(found[1], {})  # noqa: S102 - our own documentation

    assert sorted(capsys.readouterr().out.splitlines()) == [
        'fine answered {"a": 1} None',
        "not there raised None AttributeError: module 'json' has no attribute 'no_such_function'",
    ]
