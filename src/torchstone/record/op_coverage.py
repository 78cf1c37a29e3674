"""How much of a model's calls is covered by tests that pass on a backend."""

from torchstone.record.base import Record


class OpCoverage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One op of a model. What neither passed nor failed was not tested."""

    op: str
    configurations: int
    passed: int
    failed: int
    calls: int  # that were counted
    passed_calls: int
    failed_calls: int


class ModelCoverage(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A model on a backend."""

    models: tuple[str, ...]
    backend: str
    ops: tuple[OpCoverage, ...]  # the one with most calls that do not pass first
    uncounted: int  # places whose calls nobody counted: no part of the shares of calls

    @property
    def calls(self) -> int:
        """The calls that were counted."""
        return sum(op.calls for op in self.ops)

    @property
    def passed_calls(self) -> int:
        """Calls of configurations that pass."""
        return sum(op.passed_calls for op in self.ops)

    @property
    def failed_calls(self) -> int:
        """Calls of configurations that fail."""
        return sum(op.failed_calls for op in self.ops)

    @property
    def configurations(self) -> int:
        """The configurations of the model."""
        return sum(op.configurations for op in self.ops)

    @property
    def passed(self) -> int:
        """Configurations that pass."""
        return sum(op.passed for op in self.ops)

    @property
    def share(self) -> float | None:
        """The share of calls that is covered; None where no call was counted."""
        return self.passed_calls / self.calls if self.calls else None
