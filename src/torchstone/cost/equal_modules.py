"""Layers of a run as modules of the tree: what is summed for one of them holds for the others."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualModules:
    """Neighbours in the tree that are followed by as many equal ones, again and again."""

    first: int
    size: int
    copies: int  # how often equal ones follow

    @property
    def modules(self) -> range:
        """The ones that are worked out."""
        return range(self.first, self.first + self.size)

    @property
    def followers(self) -> range:
        """Those that equal them."""
        return range(self.modules.stop, self.modules.stop + self.size * self.copies)

    def spread(self, column: list[int]) -> None:
        """Write what a column has for the ones that are worked out to those that follow."""
        followers = self.followers
        column[followers.start : followers.stop] = column[self.first : followers.start] * self.copies


def find_equal_modules(parents: Sequence[int], ran: Collection[int], step: int, copies: int) -> EqualModules | None:
    """The neighbours around some modules, each of which has its equals at a step; None where the tree is not like that.

    `parents` are those of all modules, in pre-order. Equal neighbours hang on the same module, or on equal ones among
    themselves.
    """
    first = min(ran)
    while first > 0 and parents[first] != parents[first + step]:
        first = parents[first]
    found = EqualModules(first=first, size=step, copies=copies)
    if first <= 0 or step <= 0 or max(ran) not in found.modules:
        return None
    above = parents[first : first + step]
    for start in range(first + step, found.followers.stop, step):
        moved = [parent + start - first if parent >= first else parent for parent in above]
        if list(parents[start : start + step]) != moved:
            return None
    return found
