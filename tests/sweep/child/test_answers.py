import json

from torchstone.sweep.child.answers import first_line, json_safe


def test_an_error_is_one_line() -> None:
    assert first_line(ValueError("\n  two\nlines")) == "ValueError: two"
    assert first_line(KeyError()) == "KeyError"
    assert len(first_line(ValueError("x" * 10_000))) == 500


def test_numbers_that_json_does_not_have_become_their_names() -> None:
    safe = json_safe({"a": [float("inf"), float("nan"), 1.5], "b": (1, None), 3: object})

    assert json.loads(json.dumps(safe, allow_nan=False))["a"] == ["inf", "nan", 1.5]
    assert safe["b"] == [1, None]
    assert "object" in safe["3"]
