"""The model's own code, each line with what it costs, the modules it calls and how they fare on a backend."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from textwrap import dedent

from torchstone.record.base import Record
from torchstone.record.cost import SignatureCost
from torchstone.record.source_lines import Function, SourceLines
from torchstone.record.trace import Trace

Place = tuple[int, int]  # file and line


class Amounts(Record, frozen=True, kw_only=True):
    """What ops cost together."""

    ops: int = 0
    flops: int = 0
    moved_bytes: int = 0
    made_bytes: int = 0  # of new tensors; views take none
    unpriced: int = 0  # ops without a price, which are missing in FLOPs and bytes moved
    unsized: int = 0  # new tensors of an unknown size, which are missing in their bytes

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(
            ops=self.ops + other.ops,
            flops=self.flops + other.flops,
            moved_bytes=self.moved_bytes + other.moved_bytes,
            made_bytes=self.made_bytes + other.made_bytes,
            unpriced=self.unpriced + other.unpriced,
            unsized=self.unsized + other.unsized,
        )


class LineRow(Record, frozen=True, kw_only=True):
    """One line of a function; the amounts are those of all ops that run because of it."""

    number: int
    text: str
    amounts: Amounts | None  # None: no op runs because of this line
    modules: tuple[int, ...] = ()  # called by this line


class FunctionRow(Record, frozen=True, kw_only=True):
    """A function of the model's code."""

    name: str
    file: str
    lines: tuple[LineRow, ...]
    amounts: Amounts  # of all ops that run while it does


def function_rows(trace: Trace, prices: Sequence[SignatureCost] | None) -> tuple[FunctionRow, ...]:
    """Functions of the model's code that matter, the costliest first.

    These are the forward methods and all functions that call an op of torch themselves, not what only passes a call on.
    """
    lines = trace.lines
    if lines is None:
        return ()
    of_site = _amounts_by_site(trace, lines, prices)
    homes = _Homes(lines)
    by_line: defaultdict[Place, Amounts] = defaultdict(Amounts)
    by_function: defaultdict[int, Amounts] = defaultdict(Amounts)
    direct: set[int] = set()  # functions that call an op themselves
    for site, amounts in of_site.items():
        places = lines.lines_of(site)
        for place in places:
            by_line[place] += amounts
        for home in {home for place in places if (home := homes.of(place)) is not None}:
            by_function[home] += amounts
        own = homes.of((lines.file_of[site], lines.line_of[site]))
        direct |= set() if own is None else {own}
    called = _modules_by_line(trace, lines)
    rows = [
        FunctionRow(
            name=function.name,
            file=lines.files[function.file],
            lines=tuple(_line_rows(number, homes, by_line, called)),
            amounts=by_function[number],
        )
        for number, function in enumerate(lines.functions)
        if number in by_function and (number in direct or function.name.endswith(".forward"))
    ]
    return tuple(sorted(rows, key=lambda row: (-row.amounts.flops, -row.amounts.ops)))


class _Homes:
    """The innermost function around each line."""

    def __init__(self, lines: SourceLines) -> None:
        self.functions = lines.functions
        self._of: dict[Place, int] = {}
        for number in sorted(range(len(self.functions)), key=lambda one: self.functions[one].first_line):
            function = self.functions[number]
            for line in self.lines(function):
                self._of[function.file, line] = number  # an inner function begins later than the one around it

    def of(self, place: Place) -> int | None:
        return self._of.get(place)

    @staticmethod
    def lines(function: Function) -> range:
        return range(function.first_line, function.first_line + len(function.text.splitlines()))


def _line_rows(
    number: int, homes: _Homes, by_line: Mapping[Place, Amounts], called: Mapping[Place, Sequence[int]]
) -> Iterable[LineRow]:
    function = homes.functions[number]
    for line, text in zip(homes.lines(function), dedent(function.text).splitlines(), strict=True):
        place = (function.file, line)
        yield LineRow(number=line, text=text, amounts=by_line.get(place), modules=tuple(called.get(place, ())))


def _amounts_by_site(trace: Trace, lines: SourceLines, prices: Sequence[SignatureCost] | None) -> dict[int, Amounts]:
    """What the ops cost that each call site itself calls."""
    sites = lines.sites_of_ops(trace.repeats)
    calls = Counter(zip(sites, trace.ops.signature_of, strict=True))
    made = _made(trace, sites)
    found: defaultdict[int, Amounts] = defaultdict(Amounts)
    for (site, signature), count in calls.items():
        price = None if prices is None else prices[signature]
        is_priced = price is not None and not price.reason
        found[site] += Amounts(
            ops=count,
            flops=count * price.flops if price is not None else 0,
            moved_bytes=count * (price.bytes_read + price.bytes_written) if price is not None else 0,
            unpriced=0 if is_priced else count,
        )
    for site, amounts in made.items():
        found[site] += amounts
    found.pop(-1, None)  # no line of the model, as for adding up gradients
    return dict(found)


def _made(trace: Trace, sites: Sequence[int]) -> dict[int, Amounts]:
    """By call site, the bytes of tensors that its ops made; a view of a tensor takes no memory of its own."""
    tensors = trace.tensors
    known = {tensors.storage_of[one.tensor] for one in tensors.external}
    sizes: Counter[int] = Counter()
    unsized: Counter[int] = Counter()
    for site, outputs in zip(sites, trace.ops.outputs, strict=True):
        for tensor in outputs:
            storage = tensors.storage_of[tensor]
            if storage not in known:
                known.add(storage)
                size = tensors.specs[tensors.spec_of[tensor]].size_bytes
                sizes[site] += size or 0
                unsized[site] += size is None
    return {site: Amounts(made_bytes=size, unsized=unsized[site]) for site, size in sizes.items()}


def _modules_by_line(trace: Trace, lines: SourceLines) -> dict[Place, list[int]]:
    found: defaultdict[Place, dict[int, None]] = defaultdict(dict)
    for site, module in zip(lines.sites_of_module_calls(trace.repeats), trace.module_calls.modules, strict=True):
        if site >= 0:
            found[lines.file_of[site], lines.line_of[site]][module] = None
    return {place: list(modules) for place, modules in found.items()}
