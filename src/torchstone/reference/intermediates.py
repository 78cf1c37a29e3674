"""Which modules' inputs and outputs are kept."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torchstone.errors import InputError
from torchstone.record.trace import Trace
from torchstone.record.unique import unique_modules

UNIQUE = "unique"
ALL = "all"


def chosen_modules(trace: Trace, choice: str) -> tuple[str, ...]:
    """The paths of the called modules that a choice means: none for "", unique, all, or a pattern such as layers.*."""
    called = set(trace.module_calls.modules)
    paths = [module.path for number, module in enumerate(trace.modules) if number in called and module.path]
    match choice:
        case "":
            return ()
        case "all":
            return tuple(paths)
        case "unique":
            first = {module.module_path for module in unique_modules(trace).modules}
            return tuple(path for path in paths if path in first)
        case _:
            return _matching(paths, choice)


def _matching(paths: Sequence[str], pattern: str) -> tuple[str, ...]:
    found = tuple(path for path in paths if fnmatchcase(path, pattern))
    if not found:
        near = get_close_matches(pattern, paths, n=1, cutoff=0.3)
        meant = f"; a module that ran is {near[0]}" if near else ""
        msg = (
            f"--intermediates {pattern!r} matches no module that ran{meant}; use unique, all or a pattern such as *.mlp"
        )
        raise InputError(msg)
    return found
