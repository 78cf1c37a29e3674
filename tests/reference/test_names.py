from torchstone.reference.golden_files import module_name


def test_calls_after_the_first_are_counted() -> None:
    assert [module_name("layers.0", call) for call in range(3)] == [
        "modules/layers.0",
        "modules/layers.0#2",
        "modules/layers.0#3",
    ]


def test_the_root_has_a_name_of_its_own() -> None:
    assert module_name("", 0) == "modules/(root)"
