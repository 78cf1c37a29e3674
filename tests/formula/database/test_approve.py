from datetime import UTC, datetime

from msgspec.structs import replace

from tests.formula.entries import entry
from torchstone.formula.database.files import approved
from torchstone.record.formula import Status, Validation


def test_a_person_vouches_and_the_author_is_not_forgotten() -> None:
    pending = replace(
        entry("a.Net", "1"),
        validation=Validation(status=Status.PENDING, validator="agent (claude)", date="2026-01-02", notes="waits"),
    )
    days = {datetime.now(UTC).date().isoformat()}
    validation = approved(pending, "Ada").validation
    days.add(datetime.now(UTC).date().isoformat())  # it may be midnight

    assert (validation.status, validation.validator) == (Status.VALIDATED, "Ada")
    assert validation.notes == "written by agent (claude) on 2026-01-02"
    assert validation.date in days
    assert approved(pending, "Ada").flop_analysis == pending.flop_analysis
