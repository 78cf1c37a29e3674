"""The lines of Python code that op calls and module calls come from, as a tree of call sites."""

from collections.abc import Callable, Sequence

from torchstone.record.base import Record
from torchstone.record.consistency import in_range, same_length
from torchstone.record.repeats import Place, Repeat


class Function(Record, frozen=True, kw_only=True):
    """A function that a call site lies in, with its code as it was when it ran."""

    name: str  # as Python qualifies it: "Net.forward"
    file: int  # number in SourceLines.files
    first_line: int
    text: str  # "" where the code was too long or not to be found


class SourceLines(Record, frozen=True, kw_only=True):
    """For every recorded op and module call, the line that made it, and the lines that led there.

    A call site is a line together with the call site of the function it stands in; code of torch is left out.
    """

    files: tuple[str, ...] = ()
    file_of: tuple[int, ...] = ()  # by call site
    line_of: tuple[int, ...] = ()
    parent_of: tuple[int, ...] = ()  # a call site before it; -1: nothing of the model called it
    ops: tuple[int, ...] = ()  # call site of each recorded op, backward: of the forward op; -1: no code of the model
    module_calls: tuple[int, ...] = ()  # call site of each recorded module call
    functions: tuple[Function, ...] = ()

    def check(self, ops: int, module_calls: int, repeats: Sequence[Repeat]) -> None:
        """Raise ValueError where numbers are out of range or columns have other lengths than what they speak of."""
        sites = len(self.line_of)
        same_length(file_of=self.file_of, line_of=self.line_of, parent_of=self.parent_of)
        same_length(ops=self.ops, recorded_ops=range(ops))
        same_length(module_calls=self.module_calls, recorded_calls=range(module_calls))
        in_range("file_of", [*self.file_of, *(one.file for one in self.functions)], len(self.files))
        in_range("call sites", {*self.ops, *self.module_calls, *(one.site for one in repeats)} - {-1}, sites)
        if any(not -1 <= parent < site for site, parent in enumerate(self.parent_of)):
            msg = "a call site stands before the one that led to it"
            raise ValueError(msg)

    def sites_of_ops(self, repeats: Sequence[Repeat]) -> list[int]:
        """The call site of every op call of the trace, copies included."""
        return _with_copies(self.ops, repeats, lambda place: place.op)

    def sites_of_module_calls(self, repeats: Sequence[Repeat]) -> list[int]:
        """The call site of every module call of the trace, copies included."""
        return _with_copies(self.module_calls, repeats, lambda place: place.call)

    def lines_of(self, site: int) -> set[tuple[int, int]]:
        """File and line of a call site and of all that led to it; a line that calls itself is there once."""
        found = set()
        while site >= 0:
            found.add((self.file_of[site], self.line_of[site]))
            site = self.parent_of[site]
        return found


def _with_copies(recorded: Sequence[int], repeats: Sequence[Repeat], count: Callable[[Place], int]) -> list[int]:
    sites: list[int] = []
    taken = 0
    for repeat in repeats:
        new = count(repeat.at) - len(sites)
        sites += recorded[taken : taken + new]
        taken += new
        stretch = sites[count(repeat.start) : count(repeat.end)]
        sites += (stretch if repeat.site < 0 else [repeat.site] * len(stretch)) * repeat.copies
    return [*sites, *recorded[taken:]]
