"""The base of all records: frozen, slotted, keyword-only, comparable and hashable where their fields are."""

from typing import Annotated, ClassVar

import msgspec

PREFIX = "torchstone"  # of every schema name

Size = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # of a dimension, or a count that arithmetic relies on

Count = Annotated[int, msgspec.Meta(ge=0)]  # of calls, bytes or FLOPs, which have no limit


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact that does not change once it is known."""


class Schema(Record, frozen=True, kw_only=True):
    """The name and newest version of one kind of document."""

    kind: str
    version: int

    @property
    def name(self) -> str:
        """As it stands in the document: torchstone/trace/1."""
        return f"{PREFIX}/{self.kind}/{self.version}"


class Document(Record, frozen=True, kw_only=True):
    """A record that is a JSON document of its own; its class states the schema."""

    schema: ClassVar[Schema]

    def check(self) -> None:
        """Raise ValueError where lengths, numbers or references inside the record contradict each other.

        Called once, when the document is decoded: what a stage is given is consistent.
        """
