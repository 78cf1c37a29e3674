"""Configurations -> vectors, one each, named after them."""

from torchstone.backends.recorded import NotReplayableError
from torchstone.record.config import Configuration, SeenConfiguration
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Fields, Items, Opaque, Value
from torchstone.record.vector import Validity, Vector
from torchstone.sweep.payloads import payload_of

TRACED = "model_traced"
NEIGHBOURS = "neighbours"


def vector_of(seen: SeenConfiguration, suite: str = TRACED) -> Vector:
    """The vector of a configuration; one that cannot be made again is not valid, and says why."""
    configuration = seen.configuration
    models = sorted({one.model or one.source for one in seen.occurrences})
    vector = Vector(
        id=seen.key,
        module=configuration.op,
        suite=suite,
        op=configuration.op,
        configuration=configuration,
        facts=seen.facts,
        cluster=cluster_of(configuration),
        calls=seen.calls,
        models=tuple(models),
    )
    reason = _why_not(seen, vector)
    return vector if not reason else with_reason(vector, reason)


def with_reason(vector: Vector, reason: str) -> Vector:
    """The same vector, not valid."""
    from msgspec.structs import replace

    return replace(vector, validity=Validity.INVALID, reason=reason)


def cluster_of(configuration: Configuration) -> str:
    """What vectors that differ in sizes only have in common."""
    return f"{configuration.op}({', '.join(_kind_of(one.value) for one in configuration.arguments)})"


def _why_not(seen: SeenConfiguration, vector: Vector) -> str:
    lost = [damage for damage in seen.damage if not damage.repaired]
    if lost:
        return f"{lost[0].where} could not be read: {lost[0].kind}"
    try:
        payload_of(vector)
    except NotReplayableError as error:
        return str(error)
    return ""


def _kind_of(value: Value) -> str:
    match value:
        case TensorSpec():
            return f"{value.dtype}/{len(value.shape)}/{_layout_of(value)}"
        case None | bool() | str():
            return repr(value)
        case int():
            return "int"
        case float():
            return "float"
        case Atom(text=text):
            return text
        case Items(items=items):
            return f"[{', '.join(dict.fromkeys(map(_kind_of, items)))}]"
        case Entries() | Fields() | Opaque():
            return type(value).__name__
        case _:
            return "nothing"


def _layout_of(spec: TensorSpec) -> str:
    if spec.stride is None:
        return spec.layout
    if is_contiguous(spec.shape, spec.stride):
        return "dense"
    return "expanded" if 0 in spec.stride else "strided"


def is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether elements lie row by row without gaps."""
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= max(size, 1)
    return True
