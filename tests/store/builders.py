"""Small configurations for the tests of the store."""

from torchstone.record.config import Configuration, Occurrence, SeenConfiguration, TensorFacts
from torchstone.record.op import Phase
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument


def tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


def relu(*shape: int, op: str = "aten.relu.default", dtype: str = "float32") -> Configuration:
    return Configuration(op=op, arguments=(Argument(name="self", value=tensor(*shape, dtype=dtype)),))


def seen(
    configuration: Configuration, *occurrences: Occurrence, facts: tuple[TensorFacts, ...] = ()
) -> SeenConfiguration:
    return SeenConfiguration(configuration=configuration, occurrences=occurrences, facts=facts)


def at(source: str = "net.py", *, run: str = "1", model: str = "net", count: int | None = 1) -> Occurrence:
    return Occurrence(source=source, run=run, model=model, phase=Phase.FORWARD, count=count)
