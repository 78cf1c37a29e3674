"""Where a port goes wrong first and how the error spreads: per module, the error it inherits and the error it has."""

import re
from collections.abc import Iterable, Sequence

from torchstone.record.reference import WRONG, LayerError, Role, Status, TensorVerdict
from torchstone.reference.golden_files import INPUTS, OUTPUTS

_LAYER = re.compile(r"(?P<stack>.*?)(?P<number>\d+)$")
_FLAT = 0.02  # a growth of less than 2 % per layer is none
_FEWEST = 2


def layer_errors(verdicts: Sequence[TensorVerdict]) -> tuple[LayerError, ...]:
    """One entry for each call of a module whose outputs were compared, in order of execution."""
    taken = _by_call(verdicts, Role.MODULE_INPUT, INPUTS)
    found = []
    for call, outputs in _by_call(verdicts, Role.MODULE_OUTPUT, OUTPUTS).items():
        compared = [one for one in outputs if one.matched_by is not None or one.errors is not None]
        if not compared:
            continue
        error, inherited = _largest(compared), _inherited(taken.get(call, []))
        wrong = any(one.status in WRONG for one in compared)
        found.append(
            LayerError(
                module=compared[0].module or "",
                call=call,
                state="wrong" if wrong else max((one.status for one in compared), key=_strength).value,
                error=error,
                inherited=inherited,
                added=None if error is None or inherited is None else error - inherited,
            )
        )
    return tuple(found)


def _strength(status: Status) -> bool:
    return status is not Status.PASSED


def _by_call(verdicts: Iterable[TensorVerdict], role: Role, part: str) -> dict[str, list[TensorVerdict]]:
    """Verdicts by call of a module: modules/norm, modules/norm#2."""
    calls: dict[str, list[TensorVerdict]] = {}
    for verdict in verdicts:
        if verdict.role is role:
            calls.setdefault(verdict.name.partition(f"/{part}")[0], []).append(verdict)
    return calls


def _largest(verdicts: Iterable[TensorVerdict]) -> float | None:
    known = [one.errors.relative_l2 for one in verdicts if one.errors is not None]
    return max((value for value in known if value is not None), default=None)


def _inherited(inputs: Sequence[TensorVerdict]) -> float | None:
    """The largest error of the inputs; None, unknown, unless each of them was compared."""
    if not inputs or any(one.errors is None for one in inputs if one.status is not Status.NOT_KEPT):
        return None
    return _largest(inputs)


# --- In words ---


def spread_words(layers: Sequence[LayerError]) -> str:
    """Where the error begins and how it grows with depth; "" where no module was compared."""
    wrong = next((place for place, one in enumerate(layers) if one.state == "wrong"), None)
    if not layers:
        return ""
    if wrong is None:
        growth = _growth(layers, 0)
        return f"no module is beyond tolerance{f'; the error {growth}' if growth else ''}"
    first = layers[wrong]
    growth = _growth(layers, wrong)
    begins = f"first beyond tolerance: {first.module}{_size(first)}"
    return f"{begins}; {_origin(first)}{f'; it {growth} after that' if growth else ''}"


def _size(layer: LayerError) -> str:
    return "" if layer.error is None else f" (relative error {layer.error:.2g})"


def _origin(layer: LayerError) -> str:
    if layer.inherited is None:
        return "how much of it is inherited is unknown, as its inputs were not given"
    if layer.error is None:
        return f"its inputs have an error of {layer.inherited:.2g}"
    share = "most of it is inherited" if layer.inherited > layer.error / 2 else "most of it is added there"
    return f"{share} (its inputs have {layer.inherited:.2g})"


def _growth(layers: Sequence[LayerError], first: int) -> str:
    """How the error changes per layer: over the largest stack of numbered layers, else over all modules."""
    stack = _stack(layers)
    begins = layers[first]
    chosen = [one for one in layers[first:] if one.module in stack] if stack else list(layers[first:])
    if first and begins.module not in stack and chosen and not chosen[0].module.startswith(begins.module):
        chosen = [begins, *chosen] if not stack else chosen
    known = [one.error for one in chosen if one.error]
    if len(known) < _FEWEST:
        return ""
    per_layer = float((known[-1] / known[0]) ** (1 / (len(known) - 1)))
    what = "layer" if stack else "module"
    if abs(per_layer - 1) < _FLAT:
        return f"stays the same over {len(known)} {what}s"
    word = "grows" if per_layer > 1 else "shrinks"
    return f"{word} {per_layer:.3g}x per {what} over {len(known)} {what}s"


def _stack(layers: Sequence[LayerError]) -> frozenset[str]:
    """The modules of the largest outermost stack: encoder.layer.0, encoder.layer.1, ..."""
    stacks: dict[str, set[str]] = {}
    for one in layers:
        found = _LAYER.fullmatch(one.module)
        if found is not None:
            stacks.setdefault(found["stack"], set()).add(one.module)
    best = max(stacks.values(), key=lambda names: (len(names), -min(map(len, names))), default=set[str]())
    return frozenset(best) if len(best) >= _FEWEST else frozenset()
