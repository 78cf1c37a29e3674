import msgspec

from torchstone.record.config import Configuration, Damage, Occurrence, OpSummary, SeenConfiguration, TensorFacts
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Argument
from torchstone.report.ops_text import family_text, operations_text

SPEC = TensorSpec(shape=(2, 3), dtype="float32", stride=(3, 1))


def fill(index: int, *, count: int | None = 5) -> SeenConfiguration:
    return SeenConfiguration(
        configuration=Configuration(
            op="aten.fill.Scalar", arguments=(Argument(name="self", value=SPEC), Argument(name="value", value=index))
        ),
        occurrences=(Occurrence(source="net.py", model="net", count=count),),
    )


def test_the_most_called_op_comes_first() -> None:
    text = operations_text(
        [
            OpSummary(op="aten.a", configurations=1, calls=5, uncounted=0, models=("net",)),
            OpSummary(op="aten.b", configurations=20, calls=70, uncounted=0, models=("a", "b", "c")),
            OpSummary(op="aten.c", configurations=2, calls=0, uncounted=2, models=()),
        ]
    )

    assert text.splitlines() == [
        "op      configurations        calls  models",
        "aten.b              20           70  a, b and 1 more",
        "aten.a               1            5  net",
        "aten.c               2  not counted",
    ]


def test_a_configuration_is_one_block() -> None:
    one = fill(3)

    assert family_text([one]).splitlines() == [
        f"{one.key[:15]}  aten.fill.Scalar  5 calls, net",
        "  self: Tensor(shape=[2, 3], dtype=float32)",
        "  value: 3",
    ]


def test_near_duplicates_show_the_values_that_differ_in_order() -> None:
    members = [fill(index) for index in (10, 9, *range(11, 20))]

    head, _, value = family_text(members).splitlines()

    assert "and 10 that differ only in the values listed below, 55 calls" in head
    assert value == "  value: 11 values: 9 | 10 | 11 | 12 | 13 | 14 | 15 | 16 | ..."


def test_calls_that_nobody_counted_are_not_zero() -> None:
    assert "calls not counted" in family_text([fill(3, count=None)])


def test_one_call_is_one_call() -> None:
    assert "  1 call, net" in family_text([fill(3, count=1)])


def test_facts_damage_and_shared_memory_are_shown_where_they_belong() -> None:
    base = fill(3)
    told = msgspec.structs.replace(
        base,
        configuration=msgspec.structs.replace(base.configuration, aliases=((0, 0),)),
        facts=(TensorFacts(tensor=0, lowest=-1.25, highest=7, has_nan=True, has_inf=True), TensorFacts(tensor=9)),
        damage=(
            Damage(where="value", kind="not JSON", text="{"),
            Damage(where="self", kind="a dash", text="x", repaired=True),
        ),
    )

    lines = family_text([told]).splitlines()

    assert lines[1].endswith("(values -1.25 to 7, with NaN, with Inf)")
    assert lines[2].endswith("(unread: not JSON)")
    assert lines[3] == "  same memory: self, self"
