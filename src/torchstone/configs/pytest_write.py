"""SeenConfigurations of aten ops -> one pytest file that needs nothing but torch."""

from collections.abc import Iterable
from pathlib import Path

from torchstone.configs.exchange import Exported
from torchstone.record.config import Configuration, SeenConfiguration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Atom, Entries, Items, Value

_TEMPLATE = Path(__file__).parent / "pytest_file.txt"
_KEY_LETTERS = 15  # of a key in the name of a test: "k1-" and twelve digits


class _UnwritableError(ValueError):
    """A value that a test file has no words for."""


def write_pytest(seen: Iterable[SeenConfiguration]) -> Exported:
    """A test for each configuration of an aten op: the device must give what the CPU gives."""
    lines: list[str] = []
    left_out: dict[str, int] = {}
    for one in seen:
        try:
            lines.append(_parameter(one))
        except _UnwritableError as reason:
            left_out[str(reason)] = left_out.get(str(reason), 0) + 1
    body = "\n".join(lines)
    text = _TEMPLATE.read_text(encoding="utf-8").replace("    # CALLS", body)
    return Exported(text=text, configurations=len(lines), left_out=left_out)


def _parameter(one: SeenConfiguration) -> str:
    configuration = one.configuration
    if not configuration.op.startswith("aten."):
        msg = "configurations of ops that are not aten's"
        raise _UnwritableError(msg)
    if configuration.aliases:
        msg = "configurations whose tensors share memory"
        raise _UnwritableError(msg)
    writer = _Writer(one.facts)
    positional = [writer.text(argument.value) for argument in configuration.arguments if argument.position is not None]
    named = [
        f"{argument.name!r}: {writer.text(argument.value)}"
        for argument in configuration.arguments
        if argument.position is None
    ]
    call = f"{configuration.op!r}, [{', '.join(positional)}], {{{', '.join(named)}}}"
    return f"    pytest.param({call}, id={_test_name(configuration)!r}),"


def _test_name(configuration: Configuration) -> str:
    return f"{configuration.op}-{configuration.key[:_KEY_LETTERS]}"


class _Writer:
    """Writes values as Python; tensors are counted, so that each finds the facts about it."""

    def __init__(self, facts: tuple[TensorFacts, ...]) -> None:
        self._facts = {fact.tensor: fact for fact in facts}
        self._tensors = 0

    def text(self, value: Value) -> str:
        match value:
            case TensorSpec():
                return self._tensor(value)
            case Items(kind="list" | "tuple" as kind, items=items):
                inner = ", ".join(map(self.text, items))
                return f"[{inner}]" if kind == "list" else f"({inner},)" if len(items) == 1 else f"({inner})"
            case Entries(entries=entries):
                return "{" + ", ".join(f"{self.text(key)}: {self.text(item)}" for key, item in entries) + "}"
            case Atom(kind="dtype" | "layout" | "memory_format", text=text):
                return f"torch.{text}"
            case Atom(kind="device"):
                return "DEVICE"
            case Atom(kind="float", text=text):
                return f"float({text!r})"
            case None | bool() | int() | float() | str():
                return repr(value)
            case _:
                msg = f"configurations with a value that Python code cannot spell ({type(value).__name__})"
                raise _UnwritableError(msg)

    def _tensor(self, spec: TensorSpec) -> str:
        fact = self._facts.get(self._tensors)
        self._tensors += 1
        if spec.layout != "strided" or spec.stride is None or spec.subclass:
            msg = "configurations with a tensor that is not strided"
            raise _UnwritableError(msg)
        parts = [str(spec.shape), f"torch.{spec.dtype}", str(spec.stride)]
        if spec.storage_offset:
            parts.append(f"offset={spec.storage_offset}")
        if fact is not None and fact.lowest is not None and fact.highest is not None:
            parts += [f"low={fact.lowest!r}", f"high={fact.highest!r}"]
        if fact is not None and fact.values is not None:
            parts.append(f"values={fact.values!r}")
        return f"Spec({', '.join(parts)})"
