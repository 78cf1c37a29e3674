from torchstone.record.reference import Box, Check, Checklist
from torchstone.report.reference_text import checklist_markdown, checklist_text


def checklist() -> Checklist:
    good = Check(title="read back", passed=True, detail="3 of 3")
    bad = Check(title="run again", passed=False, detail="differs")
    return Checklist(
        model="net",
        complete=False,
        boxes=(
            Box(name="a", title="Golden data", files=("a.json", "a.pt"), checks=(good,)),
            Box(name="b", title="Graph", files=("b.svg",), checks=(good, bad)),
            Box(name="c", title="Summary", files=(), checks=()),
        ),
    )


def test_a_box_is_ticked_only_when_every_check_passed() -> None:
    page = checklist_markdown(checklist())

    assert "- [x] **Golden data** (`a.json`, `a.pt`)" in page
    assert "- [ ] **Graph** (`b.svg`)" in page
    assert "**failed**: run again: differs" in page
    assert "1 of 3 boxes are ticked" in page


def test_a_box_without_checks_says_so() -> None:
    assert "**no check ran**" in checklist_markdown(checklist())


def test_the_terminal_shows_why_a_box_is_open() -> None:
    lines = checklist_text(checklist()).splitlines()

    assert lines == [
        "[x] Golden data: 1 of 1 checks",
        "[ ] Graph: 1 of 2 checks",
        "      run again: differs",
        "[ ] Summary: 0 of 0 checks",
    ]
