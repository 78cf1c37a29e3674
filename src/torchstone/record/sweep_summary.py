"""The answers of `sweep generate` and `sweep retrace`: vectors in numbers, and whether they ran as traced."""

from typing import Any

from msgspec import UNSET, UnsetType

from torchstone.record.base import Record

RETRACE_RESULTS = ("match", "diff", "missing", "not told")


class Share(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How much of a whole the chosen vectors cover."""

    covered: int
    all: int


class GenerateSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The vectors that were generated."""

    modules: int  # ops and sweep modules
    vectors: int
    valid: int
    suites: dict[str, int]  # suite -> vectors
    left_out: int  # valid vectors that did not fit into the budget
    expected_s: float
    clusters: Share  # of vectors that differ in sizes only
    calls: Share
    invalid: dict[str, int]  # reason -> vectors
    budget: str | None = None  # as the user wrote it: 90s, 10m


class RetracedVector(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What one vector executed, compared with the traced call."""

    id: str
    op: str
    suite: str
    result: str  # one of RETRACE_RESULTS
    differences: tuple[str, ...] = ()
    incidental: int | UnsetType = UNSET  # other ops that ran; unset where the vector could not be recorded


class RetraceSummary(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Whether a sweep ran what the models ran."""

    run: str
    counts: dict[str, int]
    left_out: int  # vectors that did not run, or that belong to a sweep module
    vectors: tuple[RetracedVector, ...] = ()

    @property
    def has_differences(self) -> bool:
        """Whether a vector ran something else than was traced, or there was none to compare."""
        return bool(self.counts["diff"] or self.counts["missing"] or not self.vectors)


def retraced(vector_id: str, op: str, suite: str, answer: dict[str, Any]) -> RetracedVector:
    """One vector, from the answer of the process that recorded it."""
    return RetracedVector(
        id=vector_id,
        op=op,
        suite=suite,
        result=answer["result"],
        differences=tuple(answer["differences"]),
        incidental=answer.get("incidental", UNSET),
    )
