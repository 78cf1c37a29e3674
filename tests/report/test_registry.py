from torchstone.report.render import SECTIONS


def test_the_tabs_start_with_the_overview_and_no_name_is_used_twice() -> None:
    names = [section.name for section in SECTIONS]

    assert names[0] == "overview"
    assert len(set(names)) == len(names)
