"""The Python lines that op calls and module calls come from, read off the stack while the model runs."""

import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import torch

from torchstone.record.source_lines import Function, SourceLines

_STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]
_INSTALLED = ("site-packages", "dist-packages")
NOT_THE_MODEL = tuple(  # folders of torch and torchstone; torchvision, beside torch, is a model's library
    f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])
)
_LONGEST = 600  # lines of a function that are kept as text


class CallSites:
    """Gives each place in the model's own code a number; one place reached by two ways is two call sites.

    The stack is read up to the function that began the run: what is above it called the capture, not the model.
    """

    def __init__(self, began: CodeType) -> None:
        self._began = began
        self._is_own: dict[CodeType, bool] = {began: False}
        self._numbers: dict[tuple[int, CodeType, int], int] = {}

    def here(self) -> int:
        """The call site that is running, or -1 where no code of the model is."""
        frame: FrameType | None = sys._getframe(1)
        places: list[tuple[CodeType, int]] = []
        is_own = self._is_own
        while frame is not None:
            code = frame.f_code
            own = is_own.get(code)
            if own is None:
                own = is_own[code] = _is_of_the_model(code.co_filename)
            if own:
                places.append((code, frame.f_lineno))
            elif code is self._began:
                break
            frame = frame.f_back
        site = -1
        for code, line in reversed(places):
            key = (site, code, line)
            site = self._numbers.setdefault(key, len(self._numbers))
        return site

    def freeze(self, ops: tuple[int, ...], module_calls: tuple[int, ...]) -> SourceLines:
        """All call sites as a record."""
        codes = dict.fromkeys(code for _, code, _ in self._numbers)
        files = {name: number for number, name in enumerate(dict.fromkeys(code.co_filename for code in codes))}
        return SourceLines(
            files=tuple(files),
            file_of=tuple([files[code.co_filename] for _, code, _ in self._numbers]),
            line_of=tuple([line for _, _, line in self._numbers]),
            parent_of=tuple([parent for parent, _, _ in self._numbers]),
            ops=ops,
            module_calls=module_calls,
            functions=tuple([_function(code, files[code.co_filename]) for code in codes if not _is_nested(code)]),
        )


def _is_of_the_model(file: str) -> bool:
    if file.startswith((*NOT_THE_MODEL, "<")):
        return False
    return not file.startswith(_STANDARD_LIBRARY) or any(folder in file for folder in _INSTALLED)


def _is_nested(code: CodeType) -> bool:
    """Whether the code is a comprehension or lambda, whose lines are those of the function around it."""
    return code.co_name.startswith("<")


def _function(code: CodeType, file: int) -> Function:
    first, last = code.co_firstlineno, _last_line(code)
    lines = linecache.getlines(code.co_filename)[first - 1 : last] if last - first < _LONGEST else []
    return Function(name=code.co_qualname, file=file, first_line=first, text="".join(lines))


def _last_line(code: CodeType) -> int:
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, CodeType)]
    return max([code.co_firstlineno, *ends, *inner])
