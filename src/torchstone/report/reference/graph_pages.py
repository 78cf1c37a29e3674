"""A flat graph -> pages that a person can read: few boxes each, a module that does not fit gets a page of its own.

Page 1 shows the whole model. Modules are opened, the outermost first, while the page has room; an opened module is a
frame, a closed one is a box that names its page. Modules with the same structure share one page.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import msgspec

from torchstone.record.base import Record
from torchstone.report.reference.flat_graph import NO_GROUP, Box, FlatGraph, Frame

MOST_BOXES = 24  # on one page
MOST_MODULES = 40  # with pages of their own; the rest is in the interactive graph
_PART_SIZES = (MOST_BOXES, 20, 16, 12, 8)  # boxes on one part of a module with too many children
_MOST_STUBS = 4  # boxes for what comes from or goes to other pages
_LONGEST_STUB = 30
CLOSED = "closed"  # the kind of a box that stands for a module whose inside is not on the page

Item = tuple[str, int]  # "box" or "frame", and its number in the flat graph


class Page(Record, frozen=True, kw_only=True):
    """One page: a small graph, what it shows, and which other modules look the same."""

    number: int
    title: str
    graph: FlatGraph
    same: tuple[str, ...] = ()  # other modules with this structure; the shapes are those of the one that is drawn
    shown: frozenset[int]  # boxes of the flat graph that stand on the page itself


class Pages(Record, frozen=True, kw_only=True):
    """All pages of a graph, and the modules that have none because there are too many."""

    pages: tuple[Page, ...]
    left_out: tuple[str, ...]
    alike: int  # boxes of modules that another module's page stands for
    hidden: int  # boxes of the modules that have no page


def graph_pages(graph: FlatGraph, title: str, fits: Callable[[FlatGraph], bool]) -> Pages:
    """Divide a graph into pages of at most MOST_BOXES boxes, beside those that lead to other pages.

    `fits` says whether a page can be read when it is drawn.
    """
    return _Divider(graph, title, fits).divide()


class _Plan(Record, frozen=True, kw_only=True):
    """What stands on a page before it has a number."""

    frame: int
    items: tuple[Item, ...]
    opened: tuple[int, ...]
    part: str = ""  # "part 1 of 3" of a module with too many children


class _Divider:
    def __init__(self, graph: FlatGraph, title: str, fits: Callable[[FlatGraph], bool]) -> None:
        self.graph, self.title, self.fits = graph, title, fits
        self.children = _children(graph)
        self.parent = {item: group for group, items in self.children.items() for item in items}
        self.targets: defaultdict[int, list[int]] = defaultdict(list)
        self.sources: defaultdict[int, list[int]] = defaultdict(list)
        for source, target in graph.edges:
            self.targets[source].append(target)
            self.sources[target].append(source)
        self.structures: dict[int, object] = {}
        self.page_of: dict[object, int] = {}  # structure of a frame -> the number of its first page
        self.same: defaultdict[int, list[str]] = defaultdict(list)
        self.alike = self.hidden = 0

    def divide(self) -> Pages:
        plans: list[_Plan] = []
        left_out: list[str] = []
        waiting = deque([NO_GROUP])
        while waiting:
            found = self._plans(waiting.popleft())
            plans += found
            for plan in found:
                for kind, number in plan.items:
                    if kind == "frame" and number not in plan.opened:
                        self._await_page(number, waiting, left_out)
        return Pages(pages=tuple(self._numbered(plans)), left_out=tuple(left_out), alike=self.alike, hidden=self.hidden)

    def _await_page(self, frame: int, waiting: "deque[int]", left_out: list[str]) -> None:
        structure = self._structure(frame)
        if structure in self.page_of:
            self.same[self.page_of[structure]].append(self.graph.frames[frame].label)
            self.alike += len(self._boxes_inside(frame))
        elif len(self.page_of) >= MOST_MODULES:
            left_out.append(self.graph.frames[frame].label)
            self.hidden += len(self._boxes_inside(frame))
        else:
            self.page_of[structure] = frame  # settled to a page number by _numbered
            waiting.append(frame)

    def _plans(self, frame: int) -> list[_Plan]:
        whole = _Plan(frame=frame, items=tuple(self.children[frame]), opened=())
        if not self._can_be_read(whole):
            return self._parts(frame)
        too_large: set[int] = set()  # a module that does not fit now does not fit later: pages only grow
        while (number := self._next_to_open(whole, too_large)) is not None:
            at = whole.items.index(("frame", number))
            items = (*whole.items[:at], *self.children[number], *whole.items[at + 1 :])
            larger = _Plan(frame=frame, items=items, opened=(*whole.opened, number))
            if self._can_be_read(larger):
                whole = larger
            else:
                too_large.add(number)
        return [whole]

    def _can_be_read(self, plan: _Plan) -> bool:
        return len(plan.items) <= MOST_BOXES and self.fits(self._graph(plan, {}))

    def _parts(self, frame: int) -> list[_Plan]:
        items = self.children[frame]
        plans: list[_Plan] = []
        for size in _PART_SIZES:
            parts = [items[at : at + size] for at in range(0, len(items), size)]
            plans = [
                _Plan(frame=frame, items=tuple(part), opened=(), part=f"part {number} of {len(parts)}")
                for number, part in enumerate(parts, start=1)
            ]
            if all(map(self._can_be_read, plans)):
                break
        return plans

    def _next_to_open(self, plan: _Plan, too_large: set[int]) -> int | None:
        """The outermost closed module that was not tried yet; the earliest of several."""
        closed = [number for kind, number in plan.items if kind == "frame" and number not in too_large]
        return min(closed, key=lambda number: (self._depth(number), number), default=None)

    def _depth(self, frame: int) -> int:
        depth = 0
        while frame != NO_GROUP:
            frame, depth = self.graph.frames[frame].parent, depth + 1
        return depth

    def _structure(self, frame: int) -> object:
        """What two modules have in common that are drawn alike: names below them, classes and edges, not shapes."""
        if frame not in self.structures:
            self.structures[frame] = self._structure_of(frame)
        return self.structures[frame]

    def _structure_of(self, frame: int) -> object:
        numbers = self._boxes_inside(frame)
        place = {number: at for at, number in enumerate(numbers)}
        around = self.graph.frames[frame]
        boxes = [self.graph.boxes[number] for number in numbers]
        names = tuple((_relative(box.label, around), box.detail if box.kind == "module" else "") for box in boxes)
        edges = tuple((place[one], place[two]) for one in numbers for two in self.targets[one] if two in place)
        return (around.detail, names, edges, self._frames_inside(frame, around))

    def _frames_inside(self, frame: int, around: Frame) -> tuple[str, ...]:
        """Names, classes and repeats of the modules below one, however deep."""
        found: list[str] = []
        for kind, number in self.children[frame]:
            if kind == "frame":
                inner = self.graph.frames[number]
                found += [_relative(inner.label, around), inner.detail, *self._frames_inside(number, around)]
        return tuple(found)

    # --- Pages with their numbers ---

    def _numbered(self, plans: Sequence[_Plan]) -> list[Page]:
        first_page: dict[int, int] = {}
        for number, plan in enumerate(plans, start=1):
            first_page.setdefault(plan.frame, number)
        refers = {structure: first_page[frame] for structure, frame in self.page_of.items()}
        return [self._page(number, len(plans), plan, refers) for number, plan in enumerate(plans, start=1)]

    def _page(self, number: int, pages: int, plan: _Plan, refers: dict[object, int]) -> Page:
        return Page(
            number=number,
            title=self._title(number, pages, plan),
            graph=self._graph(plan, refers),
            same=tuple(self.same.get(plan.frame, ())),
            shown=frozenset(item[1] for item in plan.items if item[0] == "box"),
        )

    def _graph(self, plan: _Plan, refers: dict[object, int]) -> FlatGraph:
        frames = {frame: at for at, frame in enumerate(sorted(plan.opened))}
        stands_for: dict[int, int] = {}  # box of the flat graph -> box of the page
        boxes: list[Box] = []
        for item in plan.items:
            boxes.append(self._box(item, frames, plan, refers))
            inside = [item[1]] if item[0] == "box" else self._boxes_inside(item[1])
            stands_for |= dict.fromkeys(inside, len(boxes) - 1)
        edges = {
            (stands_for[one], stands_for[two]): None
            for one in stands_for
            for two in self.targets[one]
            if two in stands_for and stands_for[one] != stands_for[two]
        }
        drawn = FlatGraph(
            boxes=tuple(boxes), frames=tuple(self._frame(frame, frames, plan) for frame in frames), edges=tuple(edges)
        )
        return self._with_stubs(drawn, stands_for)

    def _title(self, number: int, pages: int, plan: _Plan) -> str:
        about = "whole model" if plan.frame == NO_GROUP else _named(self.graph.frames[plan.frame])
        part = f", {plan.part}" if plan.part else ""
        return f"{self.title}: {about}{part} (page {number} of {pages})" if pages > 1 else f"{self.title}: {about}"

    def _box(self, item: Item, frames: dict[int, int], plan: _Plan, refers: dict[object, int]) -> Box:
        kind, number = item
        group = self.parent[item]
        around = self.graph.frames[group] if group != NO_GROUP else None
        place = frames.get(group, NO_GROUP) if group != plan.frame else NO_GROUP
        if kind == "box":
            box = self.graph.boxes[number]
            return msgspec.structs.replace(box, label=_relative(box.label, around), group=place)
        frame = self.graph.frames[number]
        page = refers.get(self._structure(number))
        where = f"page {page}" if page is not None else "see report.html"
        return Box(
            name=f"frame{number}",
            label=_relative(frame.label, around),
            detail=f"{frame.detail}: {where}",
            kind=CLOSED,
            group=place,
        )

    def _frame(self, number: int, frames: dict[int, int], plan: _Plan) -> Frame:
        frame = self.graph.frames[number]
        around = self.graph.frames[frame.parent] if frame.parent != NO_GROUP else None
        parent = NO_GROUP if frame.parent == plan.frame else frames.get(frame.parent, NO_GROUP)
        return msgspec.structs.replace(frame, label=_relative(frame.label, around), parent=parent)

    def _boxes_inside(self, frame: int) -> list[int]:
        found: list[int] = []
        for kind, number in self.children[frame]:
            found += [number] if kind == "box" else self._boxes_inside(number)
        return found

    def _with_stubs(self, page: FlatGraph, stands_for: dict[int, int]) -> FlatGraph:
        """Add a box for what comes from other pages, and for what goes there."""
        sources: dict[str, list[int]] = {}
        targets: dict[str, list[int]] = {}
        for number, place in stands_for.items():
            for source in self.sources[number]:
                if source not in stands_for:
                    sources.setdefault(self._whole_name(source), []).append(place)
            for target in self.targets[number]:
                if target not in stands_for:
                    targets.setdefault(self._whole_name(target), []).append(place)
        before = [(f"from {name}", ends) for name, ends in _few(sources).items()]
        after = [(f"to {name}", ends) for name, ends in _few(targets).items()]
        first, count = len(before), len(page.boxes)
        boxes = [
            *(Box(name=f"from{at}", label=name, detail="", kind="input") for at, (name, _) in enumerate(before)),
            *page.boxes,
            *(Box(name=f"to{at}", label=name, detail="", kind="output") for at, (name, _) in enumerate(after)),
        ]
        edges = [(one + first, two + first) for one, two in page.edges]
        edges += [(at, end + first) for at, (_, ends) in enumerate(before) for end in dict.fromkeys(ends)]
        edges += [
            (end + first, first + count + at) for at, (_, ends) in enumerate(after) for end in dict.fromkeys(ends)
        ]
        return FlatGraph(boxes=tuple(boxes), frames=page.frames, edges=tuple(sorted(edges)))

    def _whole_name(self, number: int) -> str:
        """The name of a box on another page: ops are named with their module."""
        box = self.graph.boxes[number]
        if box.kind != "op" or box.group == NO_GROUP:
            return _end(box.label)
        return f"{box.label} in {_end(self.graph.frames[box.group].path)}"


def _children(graph: FlatGraph) -> dict[int, list[Item]]:
    """The boxes and frames directly inside each frame, in order of execution."""
    children: defaultdict[int, list[Item]] = defaultdict(list)
    seen: set[int] = set()
    for number, box in enumerate(graph.boxes):
        group, item = box.group, ("box", number)
        while True:
            children[group].append(item)
            if group == NO_GROUP or group in seen:
                break
            seen.add(group)
            group, item = graph.frames[group].parent, ("frame", group)
    return children


def _relative(label: str, around: Frame | None) -> str:
    """A path below the frame it stands in: query instead of encoder.layer.0.attention.self.query."""
    return label if around is None else label.removeprefix(f"{around.path}.")


def _named(frame: Frame) -> str:
    return f"{frame.label}, {frame.detail}"


def _end(name: str) -> str:
    """The end of a long name, which distinguishes most."""
    return name if len(name) <= _LONGEST_STUB else f"…{name[1 - _LONGEST_STUB :]}"


def _few(ends: dict[str, list[int]]) -> dict[str, list[int]]:
    """At most a few names; the others are counted."""
    if len(ends) <= _MOST_STUBS:
        return ends
    names = list(ends)
    kept = {name: ends[name] for name in names[: _MOST_STUBS - 1]}
    rest = names[_MOST_STUBS - 1 :]
    return kept | {f"{len(rest)} other boxes": [end for name in rest for end in ends[name]]}
