"""The base of all records: frozen, slotted, keyword-only, comparable and hashable where their fields are."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact that does not change once it is known."""
