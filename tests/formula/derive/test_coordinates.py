from torchstone.formula.algebra.polynomial import Polynomial
from torchstone.formula.derive.coordinates import OF_RULE, Coordinates, coordinates_of, part_of, share_of
from torchstone.formula.derive.database_entries import text_of

GROUPED = Coordinates(
    extra={"groups": part_of("heads", "kv"), "half": share_of("head_dim", 2)}, bound=frozenset({"heads", "head_dim"})
)


def test_bound_parameters_become_free_coordinates() -> None:
    assert GROUPED.point({"heads": 12, "kv": 3, "head_dim": 10}) == {"kv": 3, "groups": 4, "half": 5}


def test_a_coordinate_that_is_not_whole_is_left_out() -> None:
    assert "groups" not in GROUPED.point({"heads": 7, "kv": 3})


def test_a_form_in_coordinates_is_written_in_parameters() -> None:
    form = Polynomial.product(4, {"kv": 1, "groups": 1, "half": 1})

    assert text_of(GROUPED.in_parameters(form)) == "2 * ${head_dim} * ${heads}"


def test_the_guards_say_where_coordinates_are_whole() -> None:
    assert GROUPED.guards(frozenset({"heads", "kv", "head_dim"})) == ("heads % kv == 0", "head_dim % 2 == 0")
    assert GROUPED.guards(frozenset({"kv"})) == ()


def test_the_positions_of_a_convolution_are_those_of_torch() -> None:
    sizes = {"length": 20, "kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "groups": 1,
             "in_channels": 4, "out_channels": 6, "B": 2}  # fmt: skip

    assert OF_RULE["Conv1d"].point(sizes)["out_length"] == (20 + 2 - 2 * 2 - 1) // 2 + 1


def test_classes_read_by_a_rule_have_coordinates_of_their_own() -> None:
    assert coordinates_of("configured", GROUPED) is GROUPED
    assert coordinates_of("Conv1d", GROUPED) is OF_RULE["Conv1d"]
    assert coordinates_of("Linear", GROUPED) == Coordinates()
