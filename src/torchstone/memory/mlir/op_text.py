"""The text behind `Executing operation:` -> OpCall."""

import re

from torchstone.memory.mlir.brackets import split_list
from torchstone.memory.mlir.tensor_type import read_type
from torchstone.record.memory import OpCall, TensorType

_HEAD = re.compile(
    r'(?:(%[^="]*?) = )?"?([A-Za-z_][\w.$-]*)"?(?: @([\w.$-]+))?\((?:@([\w.$-]+)(?:, )?)?([^()]*)\)(.*)', re.DOTALL
)
_PLAIN_HEAD = re.compile(r'(?:(%[^="]*?) = )?"?([A-Za-z_][\w$-]*\.[\w.$-]+)"?(.*)', re.DOTALL)
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULT = re.compile(r"(%[\w$.-]+)(?::(\d+))?")
_ARROW = re.compile(r"\)\s*->\s*")


class OpReader:
    """Reads op texts; each distinct type and signature is read once."""

    def __init__(self) -> None:
        self.types: list[TensorType] = []
        self._type_ids: dict[str, int] = {}
        self._signatures: dict[str, tuple[tuple[int, ...], tuple[int, ...]] | None] = {}

    def type_id(self, text: str) -> int:
        """The row of a type."""
        known = self._type_ids.get(text)
        return self.add_type(text, read_type(text)) if known is None else known

    def add_type(self, key: str, tensor: TensorType) -> int:
        """Remember a type under the text it was read from."""
        self._type_ids[key] = len(self.types)
        self.types.append(tensor)
        return len(self.types) - 1

    def read(self, text: str) -> OpCall | None:
        """An op's text as a call; None when a part of it is missing or does not balance."""
        body, found, location = text.rpartition(" loc(")
        if not found or not location.endswith(")"):
            return None
        head, found, signature = body.rpartition(" : (")
        types = self._signature(signature) if found else ((), ())
        match = _HEAD.fullmatch(head if found else body)
        if types is None or match is None:
            return None
        results, name, called, cached, operands, details = match.groups()
        if split_list(details) is None:
            return None
        return OpCall(
            name=name,
            results=result_names(results or ""),
            operands=tuple(_VALUE.findall(operands)),
            operand_types=types[0],
            result_types=types[1],
            callee=called or cached or "",
            details=details.strip(),
            location=location[:-1],
        )

    def _signature(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """`types) -> types` as rows."""
        if text not in self._signatures:
            self._signatures[text] = self._read_signature(text)
        return self._signatures[text]

    def _read_signature(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        for arrow in _ARROW.finditer(text):  # maps inside layouts have arrows too: the right one balances both sides
            operands = split_list(text[: arrow.start()])
            if operands is None:
                continue
            outcome = text[arrow.end() :]
            results = split_list(outcome[1:-1] if outcome.startswith("(") and outcome.endswith(")") else outcome)
            if results is not None:
                return tuple(map(self.type_id, operands)), tuple(map(self.type_id, results))
        return None


def guess_call(text: str) -> OpCall:
    """What can be told of an op whose text is damaged: its name, if that."""
    match = _PLAIN_HEAD.match(text)
    if match is None:
        return OpCall(name="", details=text[:200])
    return OpCall(name=match.group(2), results=result_names(match.group(1) or ""), details=match.group(3)[:200].strip())


def result_names(text: str) -> tuple[str, ...]:
    """The values an op defines: `%0:2` defines %0#0 and %0#1, `%query, %key` two values by name."""
    names: list[str] = []
    for name, count in _RESULT.findall(text):
        names += [f"{name}#{index}" for index in range(int(count))] if count else [name]
    return tuple(names)


def head_of(call: OpCall) -> str:
    """A call without its types and properties: the same in a module dump and at run time."""
    name = call.name.removeprefix("func.")
    return f"{','.join(call.results)}={name}({call.callee};{','.join(call.operands)})"


def read_head(line: str) -> str | None:
    """The head of an op line of a module dump; None when it is no op that will run."""
    match = _HEAD.fullmatch(line)
    if match is None or match.group(2) in {"return", "func.func"}:
        return None
    results, name, called, cached, operands, _ = match.groups()
    return head_of(
        OpCall(
            name=name,
            results=result_names(results or ""),
            operands=tuple(_VALUE.findall(operands)),
            callee=called or cached or "",
        )
    )
