"""The formula database: list and show its entries, evaluate, solve, compare, approve and generate code from them.

Nothing here needs torch. Every function takes the formulas to work on; without them it reads the shipped entries and
the user's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from torchstone.errors import FormulaError, InputError
from torchstone.formula.algebra.growth import DominantRange, Growth, Solution
from torchstone.formula.algebra.view import Form, FormulaView
from torchstone.formula.database.changes import Change, changes
from torchstone.formula.database.compute import available_formulas, compute, explanation
from torchstone.formula.database.files import Formulas, load_file, own_entries, remove_entry, save_entry
from torchstone.formula.database.templates import known_quantities, name_of
from torchstone.formula.language.evaluate import evaluate
from torchstone.formula.language.expression import Expression, Number, Value, free_parameters
from torchstone.formula.language.parse import parse
from torchstone.record.formula import FormulaEntry, Quantity, Status

NO_PARAMETERS: Mapping[str, Expression | Value] = {}


class Limit(StrEnum):
    """The quantity that `solve_formula` keeps within a limit."""

    MEMORY = "memory"  # bytes of weights and of activations that are live at one time
    TRAFFIC = "traffic"  # bytes read and written
    FLOPS = "flops"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities whose sum is limited."""
        match self:
            case Limit.MEMORY:
                return (Quantity.WEIGHTS, Quantity.INTERMEDIATES)
            case Limit.TRAFFIC:
                return (Quantity.READS, Quantity.WRITES)
            case Limit.FLOPS:
                return (Quantity.FLOPS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """Which entries to list."""

    text: str = ""  # a part of the class path, variant or alias
    status: Status | None = None
    check: bool = False  # look for mistakes in every entry


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResult:
    """The entries by key, those of the user's own among them, and the mistakes that were found."""

    entries: Mapping[str, FormulaEntry]
    own: frozenset[str]
    total: int  # entries in the database
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """An entry, the values to substitute, and the form of its formulas.

    `name` is a class path or an unambiguous part of it, with a variant in brackets: LlamaAttention[decode].
    """

    name: str
    parameters: Mapping[str, Expression | Value] = field(default_factory=dict)
    quantities: tuple[Quantity, ...] = ()  # empty: every quantity that the entry has
    form: Form = Form.WRITTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult:
    """An entry and its formulas."""

    entry: FormulaEntry
    formulas: Mapping[Quantity, Expression]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dominance:
    """The largest part of one quantity from which value of a parameter on: by term as written, and by power."""

    quantity: Quantity
    terms: Sequence[DominantRange]
    powers: Sequence[DominantRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """An entry and the values of its parameters; those with a default may be omitted."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    quantities: tuple[Quantity, ...] = ()  # empty: every quantity that the entry has
    explain: bool = False  # also return how each value is computed


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """The exact value of each quantity (FLOPs or bytes); with `explain`, also the tree of its computation."""

    entry: FormulaEntry
    parameters: Mapping[str, Value]
    values: Mapping[Quantity, Value]
    explanations: Mapping[Quantity, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRequest:
    """The parameter to find, the values of the others, and exactly one limit."""

    name: str
    parameters: Mapping[str, Expression | Value] = field(default_factory=dict)
    parameter: str = "B"
    memory_bytes: int | None = None
    traffic_bytes: int | None = None
    flops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveResult:
    """The largest value within the limit (None: no value is), and the quantities at that value."""

    entry: FormulaEntry
    parameter: str
    kind: Limit
    limit: int
    solution: Solution | None
    costs: Mapping[Quantity, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
    """The entries that are not identical in both databases."""

    changes: Sequence[Change]

    @property
    def differs(self) -> bool:
        """Whether a formula that both databases have is different."""
        return any(change.differs for change in self.changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResult:
    """The package that was written."""

    package: Path
    num_classes: int


def list_formulas(request: ListRequest, formulas: Formulas | None = None) -> ListResult:
    """List the entries whose class path, variant or alias contains a text; with `check`, look for mistakes in all."""
    known = formulas or available_formulas()
    chosen = {key: entry for key, entry in known.entries.items() if _matches(entry, request)}
    mistakes = find_mistakes(known) if request.check else ()
    return ListResult(entries=chosen, own=known.own, total=len(known.entries), mistakes=mistakes)


def _matches(entry: FormulaEntry, request: ListRequest) -> bool:
    names = f"{entry.module_path} {entry.variant} {' '.join(entry.aliases)}"
    return request.text.lower() in names.lower() and request.status in (None, entry.validation.status)


def find_mistakes(formulas: Formulas) -> tuple[str, ...]:
    """Every mistake in the entries, one sentence each; breakdowns are compared only where all templates are sound."""
    from torchstone.formula.algebra.simplify import breakdown_problems
    from torchstone.formula.database.templates import problems_of

    return tuple(problems_of(formulas)) or tuple(breakdown_problems(formulas))


def show_formula(request: ShowRequest, formulas: Formulas | None = None) -> ShowResult:
    """The formulas of an entry in the requested form, with the given values substituted.

    Raises UnknownFormulaError for an unknown or ambiguous name, FormulaError for a quantity or parameter that the entry
    does not have.
    """
    view = _view(request.name, request.parameters, formulas)
    asked = request.quantities or known_quantities(view.entry)
    return ShowResult(entry=view.entry, formulas={one: view.formula(one, request.form) for one in asked})


def show_growth(request: ShowRequest, formulas: Formulas | None = None) -> dict[Quantity, list[Growth]]:
    """How each quantity grows with each parameter; raises as `show_formula` does."""
    view = _view(request.name, request.parameters, formulas)
    return {one: view.growth(one) for one in request.quantities or known_quantities(view.entry)}


def show_dominant(request: ShowRequest, parameter: str, formulas: Formulas | None = None) -> list[Dominance]:
    """The largest part of each quantity, from which value of a parameter on.

    Raises FormulaError where another parameter has neither a value nor a default.
    """
    view = _view(request.name, request.parameters, formulas)
    return [
        Dominance(
            quantity=one,
            terms=view.dominant_terms(one, parameter),
            powers=view.dominant_powers(one, parameter),
        )
        for one in request.quantities or known_quantities(view.entry)
    ]


def evaluate_formula(request: EvalRequest, formulas: Formulas | None = None) -> EvalResult:
    """Compute the quantities of an entry at one setting of its parameters, exactly (FLOPs, and bytes for the others).

    Raises UnknownFormulaError for an unknown name, FormulaError for a missing formula, a missing or unknown parameter,
    and values outside the domain of the formula.
    """
    known = formulas or available_formulas()
    entry = known.find(request.name)
    defined = known_quantities(entry)
    asked = request.quantities or tuple(defined)
    missing = [one for one in asked if one not in defined]
    if missing:
        msg = f"{entry.module_path} has no formula for {', '.join(missing)}"
        raise FormulaError(msg)
    values = {one: compute(known, request.name, one, request.parameters) for one in asked}
    explained = asked if request.explain else ()
    trees = {one: explanation(known, request.name, one, request.parameters) for one in explained}
    return EvalResult(entry=entry, parameters=request.parameters, values=values, explanations=trees)


def solve_formula(request: SolveRequest, formulas: Formulas | None = None) -> SolveResult:
    """Find the largest value of a parameter for which an entry stays within a limit, in bytes or FLOPs.

    Raises InputError unless there is exactly one limit, FormulaError where a formula or a value is missing.
    """
    kind, limit = _limit(request)
    view = _view(request.name, request.parameters, formulas)
    missing = [one for one in kind.quantities if view.entry.template(one) is None]
    if missing:
        msg = f"{name_of(view.entry)} has no formula for {', '.join(missing)}; use --flops, or write a formula for it"
        raise FormulaError(msg)
    solution = view.largest(kind.quantities, request.parameter, limit)
    return SolveResult(
        entry=view.entry,
        parameter=request.parameter,
        kind=kind,
        limit=limit,
        solution=solution,
        costs={} if solution is None else view.values_at(kind.quantities, request.parameter, solution.value),
    )


def _limit(request: SolveRequest) -> tuple[Limit, int]:
    given = {Limit.MEMORY: request.memory_bytes, Limit.TRAFFIC: request.traffic_bytes, Limit.FLOPS: request.flops}
    limits = [(kind, limit) for kind, limit in given.items() if limit is not None]
    if len(limits) != 1:
        msg = "give exactly one of --memory, --traffic and --flops"
        raise InputError(msg)
    return limits[0]


def _view(name: str, parameters: Mapping[str, Expression | Value], formulas: Formulas | None) -> FormulaView:
    known = formulas or available_formulas()
    trees = {one: Number(value) if isinstance(value, Value) else value for one, value in parameters.items()}
    return FormulaView(known, known.find(name), trees)


def diff_formulas(old: Path, new: Path | None = None) -> DiffResult:
    """Compare two database files term by term; without a second one, a file with the available formulas.

    Raises UnreadableFileError for a damaged or missing file.
    """
    before = load_file(old).modules
    after = available_formulas().entries if new is None else load_file(new).modules
    return DiffResult(changes=changes(before, after))


def approve_entry(name: str, person: str = "") -> FormulaEntry:
    """Mark a pending entry of the user's own formulas as validated by `person` (default: the user's name), and save it.

    An entry with a recipe is measured again at hidden points first. Raises UnknownFormulaError for an unknown entry,
    FormulaError for one that is not pending or that a capture contradicts.
    """
    from torchstone.formula.database.compute import available_formulas
    from torchstone.formula.database.files import approved
    from torchstone.workflows.formula_derive import refute

    pending = _pending(name)
    problem = refute(pending, available_formulas())
    if problem:
        msg = f"{name_of(pending)} is wrong and was not approved: {problem}; delete it with --reject"
        raise FormulaError(msg)
    entry = approved(pending, person or _user())
    save_entry(entry)
    return entry


def reject_entry(name: str) -> FormulaEntry:
    """Delete a pending entry of the user's own formulas; raises as `approve_entry` does."""
    entry = _pending(name)
    remove_entry(name)
    return entry


def _pending(name: str) -> FormulaEntry:
    entry = Formulas(entries=own_entries().modules).find(name)
    if entry.validation.status is not Status.PENDING:
        msg = f"{name_of(entry)} is {entry.validation.status}, not pending"
        raise FormulaError(msg)
    return entry


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no such user in the system's list, as in some containers
        return "a person"


def generate_package(folder: Path, text: str = "", formulas: Formulas | None = None) -> GenerateResult:
    """Write the classes whose path contains a text, and those they call, as the Python package generated_modules.

    An earlier generated package in the folder is replaced as a whole. Raises FormulaError where no class matches,
    InputError for a folder that cannot be written or has a package of another origin.
    """
    from torchstone.formula.codegen.package import generated_files, reachable, refuse_foreign, write_package

    refuse_foreign(folder)
    chosen = reachable(formulas or available_formulas(), text)
    if not chosen.entries:
        msg = f"no class path contains {text!r}; `torchstone formula list` shows the known classes"
        raise FormulaError(msg)
    package = write_package(folder, generated_files(chosen))
    return GenerateResult(package=package, num_classes=len(chosen.entries))


def read_parameters(texts: Sequence[str]) -> dict[str, Expression]:
    """Parse PARAMETER=VALUE, where a value is a number or an expression of other parameters.

    Raises InputError for another form, a value that does not parse, and a repeated parameter.
    """
    found: dict[str, Expression] = {}
    for one in texts:
        name, equals, text = one.partition("=")
        if not equals or not name.strip():
            msg = f"{one!r} is not of the form PARAMETER=VALUE, such as B=8"
            raise InputError(msg)
        if name.strip() in found:
            msg = f"{name.strip()} is given twice; drop one of the values"
            raise InputError(msg)
        try:
            found[name.strip()] = parse(text)
        except FormulaError as error:
            msg = f"the value of {name.strip()} cannot be read: {error}"
            raise InputError(msg) from error
    return found


def read_values(texts: Sequence[str]) -> dict[str, Value]:
    """Parse PARAMETER=VALUE, where a value is a number or arithmetic such as 4*1024; raises as `read_parameters`."""
    trees = read_parameters(texts)
    for name, tree in trees.items():
        if free_parameters(tree):
            msg = f"the value of {name} depends on {', '.join(free_parameters(tree))}; give a number"
            raise InputError(msg)
    return {name: evaluate(tree, {}) for name, tree in trees.items()}
