"""A pending entry -> one that a person vouches for."""

from datetime import UTC, datetime

from msgspec.structs import replace

from torchstone.record.formula import FormulaEntry, Status, Validation


def approved(entry: FormulaEntry, person: str) -> FormulaEntry:
    """The entry as validated by a person; who wrote it stays in the notes."""
    before = entry.validation
    return replace(
        entry,
        validation=Validation(
            status=Status.VALIDATED,
            validator=person,
            date=datetime.now(UTC).date().isoformat(),
            notes=f"written by {before.validator} on {before.date}",
        ),
    )
