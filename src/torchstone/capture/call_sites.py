"""The Python lines that op calls and module calls come from, read off the stack while the model runs."""

import linecache
import os
import sys
import sysconfig
from functools import cache, lru_cache
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
_FOREIGN, _OWN, _BEGAN, _CALLS_MODULE = range(4)  # kinds of code: of others, of the model, and two of the capture


class CallSites:
    """Gives each place in the model's own code a number; one place reached by two ways is two call sites.

    The stack is read up to the function that makes the innermost module call, whose own site is known, or the one that
    began the run: what is above that called the capture, not the model.
    """

    def __init__(self, began: CodeType, calls_module: CodeType) -> None:
        # Code is looked up by its id: to hash it is to hash all its instructions, for each frame of the stack.
        self._codes: dict[int, CodeType] = {id(code): code for code in (began, calls_module)}
        self._kinds: dict[int, int] = {id(began): _BEGAN, id(calls_module): _CALLS_MODULE}
        self._numbers: dict[tuple[int, int, int], int] = {}  # by outer site, code and line
        self._running: list[int] = []  # the sites of the module calls that are running, the innermost last
        self.runs_no_line = False  # whether all that the innermost module runs is code of others

    @property
    def of_call(self) -> int:
        """The call site of the innermost module call."""
        return self._running[-1]

    def begin_call(self) -> None:
        """The function that makes module calls begins one."""
        self._running.append(self._running[-1] if self.runs_no_line else self._read(sys._getframe(2)))
        self.runs_no_line = False

    def end_call(self) -> None:
        """The innermost module call is over."""
        self._running.pop()

    def here(self) -> int:
        """The call site that is running, or -1 where no code of the model is."""
        return self._running[-1] if self.runs_no_line else self._read(sys._getframe(1))

    def _read(self, frame: FrameType | None) -> int:
        places: list[tuple[int, int]] = []
        kinds = self._kinds
        site = -1
        while frame is not None:
            code = id(frame.f_code)
            kind = kinds.get(code)
            if kind is None:
                self._codes[code] = frame.f_code  # an id may be given again when its object is gone
                kind = kinds[code] = _OWN if _is_of_the_model(frame.f_code.co_filename) else _FOREIGN
            if kind:
                if kind != _OWN:
                    site = self._running[-1] if kind == _CALLS_MODULE else -1
                    break
                places.append((code, frame.f_lineno))
            frame = frame.f_back
        for code, line in reversed(places):
            key = (site, code, line)
            site = self._numbers.setdefault(key, len(self._numbers))
        return site

    def freeze(self, ops: tuple[int, ...], module_calls: tuple[int, ...]) -> SourceLines:
        """All call sites as a record."""
        sites = [(parent, self._codes[code], line) for parent, code, line in self._numbers]
        codes = list({id(code): code for _, code, _ in sites}.values())
        files = {name: number for number, name in enumerate(dict.fromkeys(code.co_filename for code in codes))}
        return SourceLines(
            files=tuple(files),
            file_of=tuple([files[code.co_filename] for _, code, _ in sites]),
            line_of=tuple([line for _, _, line in sites]),
            parent_of=tuple([parent for parent, _, _ in sites]),
            ops=ops,
            module_calls=module_calls,
            functions=tuple([_function(code, files[code.co_filename]) for code in codes if not _is_nested(code)]),
        )


@cache
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


@lru_cache(maxsize=4096)
def _last_line(code: CodeType) -> int:
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, CodeType)]
    return max([code.co_firstlineno, *ends, *inner])
