"""Times of two runs -> ops and configurations that became slower or faster, beyond chance.

A time is the ratio of the backend to eager PyTorch, measured by turns in one process: a busy machine slows both. Each
vector is measured in several rounds, in processes of their own. Differences are judged on a logarithmic scale by
medians and median absolute deviations, which disturbed rounds do not move, for each configuration and pooled for each
op; p-values are corrected for the number of tests (Holm).
"""

from collections.abc import Iterable, Sequence
from math import exp, log, sqrt
from statistics import NormalDist, fmean, median

from torchstone.record.base import Record
from torchstone.record.vector import Timing, VectorResult

ALPHA = 0.01  # chance of any false alarm among the ops of a comparison
FEWEST_ROUNDS = 3
_FEWEST_OPS = 5  # to estimate from the ops themselves how much untouched ones differ between two runs
_MAD_TO_SIGMA = 1.4826
_MEDIAN_PENALTY = 1.2533  # a median varies more than a mean, by this factor
_FLOOR = 0.005  # half a percent: no timing is more exact
_NORMAL = NormalDist()


class Sample(Record, frozen=True, kw_only=True):
    """The rounds of one vector in two runs."""

    id: str
    op: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    calls: int = 0


class Change(Record, frozen=True, kw_only=True, omit_defaults=False):
    """How the time of an op or of one configuration changed."""

    op: str
    id: str = ""  # of the vector; "": all configurations of the op together
    configurations: int = 1
    ratio: float  # after / before
    low: float  # 99 % confidence interval of the ratio
    high: float
    p_value: float  # corrected for the number of tests
    verdict: str = ""  # slower, faster, or "": no difference that can be proved
    calls: int = 0


class PerfComparison(Record, frozen=True, kw_only=True, omit_defaults=False):
    """All ops and configurations whose times could be compared."""

    slower_by: float
    ops: tuple[Change, ...] = ()  # the slowest first
    configurations: tuple[Change, ...] = ()
    overall: float | None = None  # the median ratio of all ops
    not_judged: int = 0  # vectors with a time and too few rounds

    @property
    def slower(self) -> tuple[Change, ...]:
        """What became slower, ops before configurations."""
        return tuple(one for one in (*self.ops, *self.configurations) if one.verdict == "slower")


def samples_of(pairs: Iterable[tuple[VectorResult, VectorResult]]) -> list[Sample]:
    """The vectors that both runs timed; where eager was not timed, as in a sweep module, by their own times."""
    found = []
    for old, new in pairs:
        if old.timing is None or new.timing is None:
            continue
        both_normalized = bool(old.timing.ratios and new.timing.ratios)
        before, after = (_rounds(one, normalized=both_normalized) for one in (old.timing, new.timing))
        if min((*before, *after), default=0.0) > 0.0:
            found.append(Sample(id=new.id, op=new.op, before=before, after=after, calls=new.calls))
    return found


def _rounds(timing: Timing, *, normalized: bool) -> tuple[float, ...]:
    if normalized:
        return timing.ratios
    if timing.rounds_s or timing.runs < FEWEST_ROUNDS:
        return timing.rounds_s or (timing.median_s,)
    # A run of a version without rounds: its deviation is all that is known of its noise.
    return tuple(timing.median_s + step * timing.mad_s for step in (-1, 0, 1))


def judge_times(samples: Sequence[Sample], *, slower_by: float, alpha: float = ALPHA) -> PerfComparison:
    """Judge every op and every configuration; `slower_by` is the smallest ratio that counts as slower."""
    judged = [one for one in samples if min(len(one.before), len(one.after)) >= FEWEST_ROUNDS]
    if not judged:
        return PerfComparison(slower_by=slower_by, not_judged=len(samples))
    usual = _Usual(
        sigma=median(_sigma(one) for one in judged),
        freedom=sum(len(one.before) + len(one.after) - 2 for one in judged),
    )
    single = [_Estimate.of(one, usual) for one in judged]
    by_op: dict[str, list[_Estimate]] = {}
    for estimate in single:
        by_op.setdefault(estimate.op, []).append(estimate)
    pooled = [_pooled(group) for group in by_op.values()]
    between = _between_ops(pooled)
    ops = _decided(pooled, between, slower_by, alpha)
    return PerfComparison(
        slower_by=slower_by,
        ops=ops,
        configurations=_decided(single, between, slower_by, alpha),
        overall=median(one.ratio for one in ops),
        not_judged=len(samples) - len(judged),
    )


def _sigma(sample: Sample) -> float:
    """How much single rounds of a vector vary, on the logarithmic scale."""
    deviations = [
        abs(value - middle)
        for rounds in (sample.before, sample.after)
        for middle in [median(map(log, rounds))]
        for value in map(log, rounds)
    ]
    return max(_FLOOR, _MAD_TO_SIGMA * median(deviations))


class _Usual(Record, frozen=True, kw_only=True):
    """How much rounds vary for half of the vectors, and how well that is known."""

    sigma: float
    freedom: int


class _Estimate(Record, frozen=True, kw_only=True):
    """A difference on the logarithmic scale, and how well it is known."""

    op: str
    id: str
    shift: float
    error: float
    freedom: int
    configurations: int = 1
    calls: int = 0

    @classmethod
    def of(cls, sample: Sample, usual: _Usual) -> "_Estimate":
        """Of one vector; a few rounds that agree by chance do not make it more exact than others."""
        rounds = (len(sample.before), len(sample.after))
        sigma = _sigma(sample)
        return cls(
            op=sample.op,
            id=sample.id,
            shift=median(map(log, sample.after)) - median(map(log, sample.before)),
            error=_MEDIAN_PENALTY * max(sigma, usual.sigma) * sqrt(1 / rounds[0] + 1 / rounds[1]),
            freedom=usual.freedom if sigma <= usual.sigma else sum(rounds) - 2,
            calls=sample.calls,
        )


def _pooled(group: list[_Estimate]) -> _Estimate:
    """All configurations of an op: their mean, or for many their median, which one odd configuration does not move."""
    many = len(group) >= _FEWEST_OPS
    shifts = [one.shift for one in group]
    error = sqrt(sum(one.error**2 for one in group)) / len(group)
    return _Estimate(
        op=group[0].op,
        id="",
        shift=median(shifts) if many else fmean(shifts),
        error=error * (_MEDIAN_PENALTY if many else 1.0),
        freedom=sum(one.freedom for one in group),
        configurations=len(group),
        calls=sum(one.calls for one in group),
    )


def _between_ops(pooled: list[_Estimate]) -> float:
    """How much ops differ between the runs beyond what their rounds explain: what any two runs of one code do."""
    if len(pooled) < _FEWEST_OPS:
        return 0.0
    centre = median(one.shift for one in pooled)
    spread = _MAD_TO_SIGMA * median(abs(one.shift - centre) for one in pooled)
    return sqrt(max(0.0, spread**2 - median(one.error**2 for one in pooled)))


def _decided(estimates: list[_Estimate], between: float, slower_by: float, alpha: float) -> tuple[Change, ...]:
    errors = [sqrt(one.error**2 + between**2) for one in estimates]
    raw = [_p_value(abs(one.shift) / error, one.freedom) for one, error in zip(estimates, errors, strict=True)]
    found = []
    for one, error, p_value in zip(estimates, errors, holm(raw), strict=True):
        reach = _t_quantile(1 - alpha / 2, one.freedom) * error
        far = abs(one.shift) >= log(slower_by)
        verdict = ("slower" if one.shift > 0 else "faster") if p_value < alpha and far else ""
        found.append(
            Change(
                op=one.op, id=one.id, configurations=one.configurations, ratio=exp(one.shift),
                low=exp(one.shift - reach), high=exp(one.shift + reach), p_value=p_value, verdict=verdict,
                calls=one.calls,
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda change: (-change.ratio, change.op, change.id)))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number: the chance of any false alarm stays that of one test."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        corrected[place] = largest
    return corrected


def _p_value(distance: float, freedom: int) -> float:
    """Two-sided, of Student's t: close to exact from three degrees of freedom on."""
    z = distance * (1 - 1 / (4 * freedom)) / sqrt(1 + distance**2 / (2 * freedom))
    return 2 * _NORMAL.cdf(-z)


def _t_quantile(probability: float, freedom: int) -> float:
    """The inverse of the same approximation, by the first terms of its expansion."""
    z = _NORMAL.inv_cdf(probability)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
