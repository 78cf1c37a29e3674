import inspect
import re

import pytest

from torchstone import errors
from torchstone.errors import MissingExtraError, TorchstoneError, unknown_name

_LINE = re.compile(r"^ {4}(?P<branch>[│ ]*(?:[├└]── )?)(?P<name>\w+Error) +(?P<code>\d)  \S", re.MULTILINE)


def drawn_tree() -> dict[str, tuple[str, int]]:
    """Each class in the docstring's drawing with the one above it and its exit code."""
    above: dict[int, str] = {}
    tree = {}
    for line in _LINE.finditer(errors.__doc__ or ""):
        depth = len(line["branch"]) // 4
        above[depth] = line["name"]
        tree[line["name"]] = (above.get(depth - 1, "Exception"), int(line["code"]))
    return tree


def real_tree() -> dict[str, tuple[str, int]]:
    classes = (cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, TorchstoneError))
    return {cls.__name__: (cls.__bases__[0].__name__, cls.exit_code) for cls in classes}


def test_the_tree_in_the_docstring_is_the_real_tree() -> None:
    assert drawn_tree() == real_tree()


def test_the_exit_codes_are_those_that_scripts_rely_on() -> None:
    codes = (errors.EXIT_FINE, errors.EXIT_FINDINGS, errors.EXIT_BAD_INPUT, errors.EXIT_INTERNAL_ERROR)

    assert codes == (0, 1, 2, 3)
    assert errors.EXIT_INTERRUPTED == 130


@pytest.mark.parametrize("name", real_tree())
def test_every_error_says_what_it_means(name: str) -> None:
    assert inspect.getdoc(getattr(errors, name))


def test_a_missing_extra_names_the_extra() -> None:
    error = MissingExtraError(needed_for="reading a model", extra="hf")

    assert str(error) == "reading a model requires an optional dependency: pip install 'torchstone[hf]'"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    assert "did you mean aten.mm.default" in str(unknown_name("op", "aten.mm", ["aten.mm.default"], "x.db"))
    assert "it is empty" in str(unknown_name("op", "aten.mm", [], "x.db"))
