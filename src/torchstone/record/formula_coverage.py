"""A whole model by formulas: what each module costs by its formula, beside what was traced."""

from enum import StrEnum

import msgspec

from torchstone.record.base import Record


class Coverage(StrEnum):
    """Where the number of a module comes from."""

    FORMULA = "formula"  # from an entry that was known
    DERIVED = "derived now"  # from an entry that was derived for this run
    PENDING = "pending"  # from an entry that an agent wrote and nobody has approved yet
    TRACED = "traced only"  # there is no formula: only the traced number is known


class FormulaModule(Record, frozen=True, kw_only=True):
    """One module of a model; a module that is called several times stands for all its calls."""

    path: str
    class_name: str = msgspec.field(name="class")
    coverage: Coverage
    calls: int
    traced_flops: int
    traced_bytes_read: int
    traced_bytes_written: int
    flops: int | None = None  # by formula; None where there is none
    bytes_read: int | None = None
    bytes_written: int | None = None
    reason: str = ""  # why there is no formula

    @property
    def agrees(self) -> bool:
        """Whether formula and trace give the same; a module without a formula has nothing to disagree with."""
        if self.coverage is Coverage.TRACED:
            return True
        by_formula = (self.flops, self.bytes_read, self.bytes_written)
        return by_formula == (self.traced_flops, self.traced_bytes_read, self.traced_bytes_written)


class FormulaCost(Record, frozen=True, kw_only=True):
    """A whole model by formulas."""

    model: str
    modules: tuple[FormulaModule, ...]  # in the order of the trace's modules; those that ran
    evaluation_s: float  # to evaluate all formulas

    def count(self, coverage: Coverage) -> int:
        """How many modules have their number from there."""
        return sum(module.coverage is coverage for module in self.modules)

    @property
    def disagreeing(self) -> tuple[FormulaModule, ...]:
        """Modules whose formula gives another number than the trace."""
        return tuple(module for module in self.modules if not module.agrees)

    @property
    def document(self) -> "FormulaCostDocument":
        """The same with its counts written out, for programs that read it."""
        return FormulaCostDocument(
            model=self.model,
            coverage={one.value: self.count(one) for one in Coverage},
            disagreeing=tuple(module.path for module in self.disagreeing),
            evaluation_s=self.evaluation_s,
            modules=self.modules,
        )


class FormulaCostDocument(Record, frozen=True, kw_only=True):
    """A whole model by formulas, as `torchstone cost --by formula --json` prints it."""

    model: str
    coverage: dict[str, int]  # where numbers come from -> number of modules
    disagreeing: tuple[str, ...]  # paths of modules whose formula and trace differ
    evaluation_s: float
    modules: tuple[FormulaModule, ...]
