"""How near a candidate comes to the golden data: one verdict per tensor, with the tolerance it was judged by."""

from collections import Counter
from enum import StrEnum

from torchstone.record.base import Record
from torchstone.record.golden import Role


class Status(StrEnum):
    """How the comparison of one tensor ended."""

    PASSED = "passed"
    WRONG_VALUES = "wrong values"
    WRONG_NON_FINITE = "wrong NaN or Inf"
    WRONG_SHAPE = "wrong shape"
    WRONG_DTYPE = "wrong dtype"  # another kind of number; a narrower float is only told
    MISSING = "missing"  # an output that the candidate does not have
    NOT_GIVEN = "not given"  # an input or intermediate that the candidate does not have
    NOT_KEPT = "not kept"  # the golden data has no values to compare with


WRONG = frozenset(
    {Status.WRONG_VALUES, Status.WRONG_NON_FINITE, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.MISSING}
)


class Tolerance(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What a tensor was judged by."""

    pcc: float  # at least
    relative_l2: float  # at most: PCC does not see a wrong scale or offset, this does
    rtol: float  # of allclose, by element type
    atol: float
    exact: bool = False  # whole numbers and booleans must be equal


class Errors(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How far two tensors of one shape are apart; None is a number that does not exist for them."""

    pcc: float | None
    pcc_reason: str  # why there is no PCC; "" when there is
    cosine: float | None
    max_abs: float | None
    max_rel: float | None  # over the elements that are not 0 in the golden tensor
    relative_l2: float | None
    allclose: bool
    equal: bool  # bit for bit, NaNs at the same places
    compared: int  # elements that are finite in both
    nan: tuple[int, int] = (0, 0)  # in the golden tensor, in the candidate
    inf: tuple[int, int] = (0, 0)
    misplaced: int = 0  # elements that are NaN or infinite in one and not the same in the other
    worst_at: tuple[int, ...] | None = None  # the first misplaced element, or the one with the largest error


class TensorVerdict(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What was found about one tensor."""

    name: str
    role: Role
    module: str | None
    status: Status
    detail: str = ""
    shape: tuple[int, ...]
    dtype: str
    candidate_shape: tuple[int, ...] | None = None
    candidate_dtype: str | None = None
    errors: Errors | None = None
    tolerance: Tolerance | None = None


class Comparison(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A candidate against the golden data, in order of execution."""

    model: str
    candidate: str
    golden_created: str = ""  # when the golden data was made: a later one is another
    passed: bool
    first_wrong: str | None = None  # the name of the first tensor that is wrong
    first_wrong_module: str | None = None  # the module that gave it; "" for the model itself
    verdicts: tuple[TensorVerdict, ...] = ()
    next_step: str = ""  # what to look at, where something is wrong
    unknown: tuple[str, ...] = ()  # names of the candidate that the golden data does not have
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many tensors ended how."""
        return dict(Counter(verdict.status.value for verdict in self.verdicts))
