"""A class that cannot be derived -> an entry that an agent writes, stored if it is exact at every measured point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchstone.errors import FormulaError, InputError, UnreadableFileError
from torchstone.formula.agent.ask import Outcome, Subject, ask_for_entry
from torchstone.formula.agent.prompt import source_of_class
from torchstone.formula.agent.providers import Provider, Recorded, Replay
from torchstone.formula.database.compute import available_formulas
from torchstone.formula.database.files import Formulas, save_entry
from torchstone.record.formula import BuiltBy, FormulaEntry
from torchstone.workflows.formula import read_values
from torchstone.workflows.formula_derive import absolute_recipe, derive_recipe, measure_recipe, refute
from torchstone.workflows.progress import SILENT, Progress

PROVIDERS = ("claude", "claude-sdk", "replay")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """A class, how to build and measure it, and the provider that writes its entry."""

    class_path: str
    recipe: str  # FILE.py::FUNCTION, from parameters to the module and its inputs
    settings: Sequence[Mapping[str, int]]  # values of the parameters at which it is measured, two or more
    provider: str = "claude"  # one of PROVIDERS
    answers: Path | None = None  # recorded answers: read by replay, written by the other providers
    rounds: int = 3  # answers that the provider may give
    because: str = ""  # why it cannot be derived; empty: derivation is tried first


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """The accepted entry with the refused attempts, and where it was stored."""

    outcome: Outcome
    path: Path | None = None  # None: no answer was correct, so nothing was stored
    damaged: Path | None = None  # an unreadable database was moved here

    @property
    def accepted(self) -> bool:
        """Whether an answer was exact at every measured point."""
        return self.outcome.entry is not None


def ask_agent(request: AgentRequest, formulas: Formulas | None = None, progress: Progress = SILENT) -> AgentResult:
    """Let an agent write the entry of a class; a correct answer is stored as pending in the user's own database.

    Raises FormulaError for a class that can be derived or whose source is not found, ModelError for a recipe that
    fails, ProviderError where the provider does not answer. No correct answer within the rounds is a result.
    """
    source = source_of_class(request.class_path)
    provider = choose_provider(request.provider, request.answers, source.file.parent)
    names = list(request.settings[0]) if request.settings else []
    failure = request.because or _why_not_derived(request, names, progress)
    points, versions = measure_recipe(request.recipe, request.class_path, request.settings, progress)
    subject = Subject(
        class_path=request.class_path,
        source=source,
        points=points,
        versions=versions,
        failure=failure,
        built_by=BuiltBy(recipe=absolute_recipe(request.recipe), sizes=tuple(names)),
    )
    known = formulas or available_formulas()

    def note(number: int, problem: str) -> None:
        progress.note(f"round {number}: {problem or 'exact at every measured point'}")

    def refuted(entry: FormulaEntry) -> str:
        with progress.step("measuring at hidden points"):
            return refute(entry, known) or ""

    outcome = ask_for_entry(subject, provider, known, rounds=request.rounds, on_round=note, refuted=refuted)
    if outcome.entry is None:
        return AgentResult(outcome=outcome)
    path, damaged = save_entry(outcome.entry)
    return AgentResult(outcome=outcome, path=path, damaged=damaged)


def _why_not_derived(request: AgentRequest, sizes: Sequence[str], progress: Progress) -> str:
    """The reason why derivation refuses the class; one that can be derived needs no agent."""
    with progress.step(f"trying to derive {request.class_path}"):
        from torchstone.formula.derive.op_forms import RefusedError

        try:
            library = derive_recipe(request.recipe, sizes)
        except RefusedError as reason:
            return str(reason)
    if request.class_path in library.entries:
        msg = (
            f"{request.class_path} needs no agent, it can be derived: torchstone formula derive {request.class_path} "
            f"--recipe {request.recipe} --sizes {','.join(sizes)}"
        )
        raise FormulaError(msg)
    refused = library.refused.get(request.class_path)
    return "" if refused is None else refused.reason


def choose_provider(name: str, answers: Path | None, folder: Path | None) -> Provider:
    """The provider of a name; it may read the files in `folder`, and its answers are recorded in `answers`.

    Raises UnreadableFileError for a replay without a folder of recorded answers.
    """
    from torchstone.formula.agent.providers import ClaudeCommand, ClaudeSdk

    if name == "replay":
        if answers is None or not answers.is_dir():
            msg = "--provider replay needs --answers with a folder of recorded answers"
            raise UnreadableFileError(msg)
        return Replay(answers)
    provider: Provider = ClaudeCommand(folder) if name == "claude" else ClaudeSdk(folder)
    return provider if answers is None else Recorded(provider, answers)


def read_setting(text: str) -> dict[str, int]:
    """Parse one setting of integers: 'B=2 S=16' or 'B=2, S=16'; raises InputError for anything else."""
    values = read_values(text.replace(",", " ").split())
    broken = [name for name, value in values.items() if not isinstance(value, int)]
    if broken or not values:
        msg = f"--at {text!r} is not a setting of integers, such as 'B=2 S=16'"
        raise InputError(msg)
    return {name: int(value) for name, value in values.items()}
