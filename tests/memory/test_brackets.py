from torchstone.memory.mlir_text import closing_bracket, split_list


def test_commas_inside_brackets_and_strings_do_not_split() -> None:
    assert split_list('a<(d0, d1) -> (d0, d1)>, "x, )", [1, 2]') == ["a<(d0, d1) -> (d0, d1)>", '"x, )"', "[1, 2]"]


def test_an_empty_list_has_no_items() -> None:
    assert split_list("") == []


def test_what_does_not_balance_is_no_list() -> None:
    assert split_list("a<b, c") is None
    assert split_list("a>b") is None


def test_a_bracket_closes_where_its_twin_stands() -> None:
    assert closing_bracket("f(a -> (b), c) -> d", 1) == 13
    assert closing_bracket("f(a", 1) == -1
