"""A recipe, FILE.py::FUNCTION: the user's function from sizes to a module and its inputs."""

from collections.abc import Callable, Mapping
from typing import Any

from torchstone.errors import ModelError

Recipe = Callable[[Mapping[str, int]], tuple[Any, Any]]
_PAIR = 2


def load_recipe(recipe: str) -> Recipe:
    """The function, as one that says which recipe failed, where, and why."""
    from torchstone.models.user_code import UserCode, parse_target

    target = parse_target(recipe)
    if target is None or not target.name:
        msg = f"--recipe {recipe!r} names no function; write file.py::function or pkg.mod:function"
        raise ModelError(msg)
    make = UserCode.of(target).named(target.name)

    def made(sizes: Mapping[str, int]) -> tuple[Any, Any]:
        try:
            result = make(**sizes)
        except Exception as error:  # the user's code may raise anything
            shown = ", ".join(f"{name}={value}" for name, value in sizes.items())
            msg = f"{recipe} stops at {shown} with {type(error).__name__}: {error}"
            raise ModelError(msg) from error
        if not isinstance(result, tuple) or len(result) != _PAIR:
            msg = f"{recipe} gave {type(result).__name__}; return the module and its inputs"
            raise ModelError(msg)
        return result

    return made
