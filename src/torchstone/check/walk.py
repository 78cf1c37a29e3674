"""From the root down: what passes vouches for all below it, what fails sends the walk to its children.

The walk is pure: it says which units to run next, is told how they ended, and in the end what that says of each module.
A node is a unique module, so equal modules are walked once, wherever they hang.
"""

from collections.abc import Iterable, Mapping, Sequence

from torchstone.record.base import Record
from torchstone.record.check import FAILED_STATUSES, Status

_WORST_FIRST = (
    Status.FAILED,
    Status.IR_EXPORT_FAILED,
    Status.SKIPPED,
    Status.SUCCESS,
    Status.INHERITED_SUCCESS,
)


class Node(Record, frozen=True, kw_only=True):
    """A unique module as the walk sees it."""

    id: str
    children: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # what must run for it; none: it is passed over and its children are walked
    depth: int = 0


class Said(Record, frozen=True, kw_only=True):
    """What the walk says of a module."""

    status: Status
    children_status: Status | None = None  # of one that was passed over: the worst below it
    reached: bool = True  # False: a limit of depth or a pattern kept the walk from it


class Walk:
    """One walk; `begin`, then `tell` each result until nothing is left to run."""

    def __init__(self, nodes: Mapping[str, Node], roots: Sequence[str], *, max_depth: int | None = None) -> None:
        self._nodes = nodes
        self._roots = roots
        self._max_depth = max_depth
        self._waiting: dict[str, set[str]] = {}  # node -> units that have not ended
        self._node_of: dict[str, str] = {}
        self._statuses: dict[str, Status] = {}  # of the nodes that ran
        self._passed_over: set[str] = set()

    def begin(self) -> list[str]:
        """The units to run first."""
        return self._enter(self._roots)

    def tell(self, unit: str, status: Status) -> list[str]:
        """A unit ended, skipped where it could not be judged; gives the units to run next."""
        node = self._node_of[unit]
        self._statuses[node] = worst((self._statuses.get(node, Status.SUCCESS), status))
        self._waiting[node].discard(unit)
        if self._waiting[node] or self._statuses[node] is Status.SUCCESS:
            return []
        return self._enter(self._children(node))

    def failed(self) -> list[str]:
        """The nodes that ran and failed, in the order of the nodes."""
        return [name for name in self._nodes if self._statuses.get(name) in FAILED_STATUSES]

    def has_failure_below(self, node: str) -> bool:
        """Whether something under a node failed, too."""
        return any(self._statuses.get(below) in FAILED_STATUSES for below in self._below(node))

    def conclude(self) -> dict[str, Said]:
        """What is to be said of every node."""
        vouched_for = {
            below for node, status in self._statuses.items() if status is Status.SUCCESS for below in self._below(node)
        }
        own = {node: self._own_status(node, vouched_for) for node in self._nodes}
        return {
            node: Said(
                status=status,
                children_status=self._worst_below(node, own) if status is Status.SKIPPED else None,
                reached=node in self._passed_over or node in self._statuses or status is not Status.SKIPPED,
            )
            for node, status in own.items()
        }

    def _own_status(self, node: str, vouched_for: set[str]) -> Status:
        if node in self._statuses:
            return self._statuses[node]
        if node in vouched_for and node not in self._passed_over:
            return Status.INHERITED_SUCCESS
        return Status.SKIPPED

    def _worst_below(self, node: str, statuses: Mapping[str, Status]) -> Status | None:
        """Containers inside containers do not count: what they hold does."""
        below = [statuses[name] for name in self._below(node)]
        told = [status for status in below if status is not Status.SKIPPED]
        return worst(told or below) if below else None

    def _enter(self, nodes: Iterable[str]) -> list[str]:
        units: list[str] = []
        for name in nodes:
            if name in self._waiting or name in self._passed_over:
                continue  # another parent led here before
            node = self._nodes[name]
            if node.units:
                self._waiting[name] = set(node.units)
                self._node_of |= dict.fromkeys(node.units, name)
                units += node.units
            else:
                self._passed_over.add(name)
                units += self._enter(self._children(name))
        return units

    def _children(self, name: str) -> tuple[str, ...]:
        node = self._nodes[name]
        too_deep = self._max_depth is not None and node.depth >= self._max_depth
        return () if too_deep else node.children

    def _below(self, name: str) -> set[str]:
        found: set[str] = set()
        ahead = list(self._nodes[name].children)
        while ahead:
            one = ahead.pop()
            if one not in found and one != name:
                found.add(one)
                ahead += self._nodes[one].children
        return found


def worst(statuses: Iterable[Status]) -> Status:
    """The one that a reader must see first."""
    return min(statuses, key=_WORST_FIRST.index)
