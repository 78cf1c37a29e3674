from torchstone.cost.equal_modules import EqualModules, find_equal_modules

#           root  list  a  a.x  b  b.x  c  c.x  tail
PARENTS = (-1, 0, 1, 2, 1, 4, 1, 6, 0)


def test_layers_of_a_list_are_equal_with_all_that_is_below_them() -> None:
    found = find_equal_modules(PARENTS, {2, 3}, step=2, copies=2)

    assert found == EqualModules(first=2, size=2, copies=2)


def test_the_layer_itself_need_not_run_anything() -> None:
    assert find_equal_modules(PARENTS, {3}, step=2, copies=2) == EqualModules(first=2, size=2, copies=2)


def test_two_kinds_of_layer_may_take_turns() -> None:
    parents = (-1, 0, 1, 1, 3, 1, 1, 6, 1, 1, 9)

    assert find_equal_modules(parents, {2, 4}, step=3, copies=2) == EqualModules(first=2, size=3, copies=2)


def test_another_tree_below_one_of_them_makes_them_unequal() -> None:
    parents = (-1, 0, 1, 2, 1, 4, 1, 1, 0)

    assert find_equal_modules(parents, {2, 3}, step=2, copies=2) is None


def test_modules_that_reach_into_the_next_ones_are_not_equal() -> None:
    assert find_equal_modules(PARENTS, {2, 5}, step=2, copies=1) is None


def test_going_backwards_is_not_followed() -> None:
    assert find_equal_modules(PARENTS, {6, 7}, step=-2, copies=2) is None


def test_what_is_known_of_one_is_written_to_all_that_follow() -> None:
    column = [1, 2, 30, 31, 0, 0, 0, 0, 9]

    EqualModules(first=2, size=2, copies=2).spread(column)

    assert column == [1, 2, 30, 31, 30, 31, 30, 31, 9]
