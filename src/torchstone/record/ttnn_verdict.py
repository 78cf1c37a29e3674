"""ttnn on a mock device: its environment, the boards it opens, and its verdicts on configurations, by cause."""

from torchstone.record.base import Record


class TtnnEnvironment(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What an interpreter has of ttnn."""

    python: str
    python_version: str
    ttnn_folder: str  # "": ttnn is not installed
    ttnn: str
    torch: str  # "": not installed; needed for tracing alone
    numpy: str
    compiler: str = "none"  # real, stand-in or none
    devices: int = 0  # Tenstorrent devices of this machine


class OpenedBoard(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One board as ttnn opened it."""

    name: str
    mock: bool
    opened: bool
    error: str = ""
    arch: str = ""
    chips: int = 0
    cores: tuple[int, int] = (0, 0)
    dram_banks: int = 0
    l1_bank_bytes: int = 0
    dram_bank_bytes: int = 0
    elapsed_s: float = 0.0


class Difference(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One configuration that two runs judge differently."""

    id: str
    op: str
    before: str
    after: str
    cause: str  # of the worse one


class Cause(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Configurations that were not accepted for one reason."""

    outcome: str
    cause: str
    ops: tuple[str, ...]
    configurations: int
    calls: int
    approximate: int
    example: str  # the id of one
    place: str = ""  # the check in ttnn's source


class JudgedRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The verdicts on one board in one environment."""

    title: str  # "n300 1x2, ttnn 0.81.1"
    run: str  # its name in the sweep folder
    configurations: int
    outcomes: dict[str, int]
    approximate: int  # verdicts on configurations whose trace lost an argument
    causes: tuple[Cause, ...]
    elapsed_s: float


class Judgements(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Runs over the same configurations, and what each of them judges differently from the first."""

    runs: tuple[JudgedRun, ...]
    differences: dict[str, tuple[Difference, ...]] = {}  # title of a later run -> against the first
    unread: int = 0  # entries of the files that could not be read
    folder: str = ""


class ChangedOp(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One op that two versions of ttnn call differently."""

    op: str
    removed: tuple[str, ...] = ()  # signatures of the first version alone
    added: tuple[str, ...] = ()  # of the second
    lost_arguments: tuple[
        str, ...
    ] = ()  # names that no signature of the second version has: code that uses them breaks
    now_required: tuple[str, ...] = ()  # without a default in every signature of the second version, and not before


class VersionDiff(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The ops of two versions of ttnn."""

    before: str  # ttnn 0.75.0
    after: str
    ops: int  # in both
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[ChangedOp, ...] = ()
    judgements: Judgements | None = None  # on the configurations that were given; None: none were

    @property
    def is_compatible(self) -> bool:
        """Whether code that runs with the first version can run with the second, as far as this tells."""
        breaking = any(one.lost_arguments or one.now_required for one in self.changed)
        judged = () if self.judgements is None else self.judgements.differences.values()
        worse = any(one.before == "accepted" for found in judged for one in found)
        return not (self.removed or breaking or worse)
