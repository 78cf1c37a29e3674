"""Which vectors fit into a budget of time: those that cover most clusters, then most calls."""

import re
from collections.abc import Mapping, Sequence

from torchstone.errors import InputError
from torchstone.record.base import Record
from torchstone.record.tensor import TensorSpec, element_bits
from torchstone.record.value import tensors_in
from torchstone.record.vector import Validity, Vector

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "": 1}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)")
_USUAL_S = 0.01  # one vector in a process that is ready
_BYTES_PER_S = 2e8  # making inputs, running twice, comparing


class Choice(Record, frozen=True, kw_only=True):
    """What fits into a budget, and how much of the whole it covers."""

    vectors: tuple[Vector, ...]
    expected_s: float
    clusters: tuple[int, int]  # covered, all
    calls: tuple[int, int]


def parse_duration(text: str) -> float:
    """Seconds from 90, 90s, 10m or 1.5h."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        msg = f"--budget {text!r} is not a duration; give it as 90s, 10m or 1.5h"
        raise InputError(msg)
    return float(found[1]) * _UNIT_S[found[2]]


def choose(vectors: Sequence[Vector], budget_s: float | None, known_s: Mapping[str, float] | None = None) -> Choice:
    """Choose within a budget; `known_s` are times of earlier runs. Vectors that are not valid cost nothing and stay."""
    times = {vector.id: _expected_s(vector, known_s or {}) for vector in vectors}
    valid = [vector for vector in vectors if vector.validity is Validity.VALID]
    chosen: set[str] = set()
    spent = 0.0
    for vector in _by_worth(valid, times):
        if budget_s is not None and spent + times[vector.id] > budget_s:
            continue
        chosen.add(vector.id)
        spent += times[vector.id]
    kept = tuple(vector for vector in vectors if vector.validity is Validity.INVALID or vector.id in chosen)
    picked = [vector for vector in valid if vector.id in chosen]
    return Choice(
        vectors=kept,
        expected_s=spent,
        clusters=(len({one.cluster for one in picked}), len({one.cluster for one in valid})),
        calls=(sum(one.calls for one in picked), sum(one.calls for one in valid)),
    )


def _by_worth(vectors: Sequence[Vector], times: Mapping[str, float]) -> list[Vector]:
    """The most called of each cluster first, then the rest; among equals the cheaper and then the name decide."""
    ranked = sorted(vectors, key=lambda one: (-one.calls, times[one.id], one.id))
    first_of: dict[str, str] = {}
    for vector in ranked:
        first_of.setdefault(vector.cluster, vector.id)
    leaders = set(first_of.values())
    return sorted(ranked, key=lambda one: one.id not in leaders)  # stable: leaders first, else as ranked


def _expected_s(vector: Vector, known_s: Mapping[str, float]) -> float:
    if vector.id in known_s:
        return known_s[vector.id]
    if vector.configuration is None:
        return _USUAL_S
    specs = [spec for argument in vector.configuration.arguments for spec in tensors_in(argument.value)]
    return _USUAL_S + sum(map(_size_bytes, specs)) / _BYTES_PER_S


def _size_bytes(spec: TensorSpec) -> int:
    return spec.elements * (element_bits(spec.dtype) or 64) // 8
