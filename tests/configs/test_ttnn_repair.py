import pytest

from tests.configs.samples import ONE_RANGE, TWO_RANGES, sharded_argument
from torchstone.backends.ttnn_trace_text import UNPARSED, DamageKind
from torchstone.configs.ttnn_master import repaired_argument, unrecorded
from torchstone.record.ttnn import TtnnShard, ttnn_tensor
from torchstone.record.value import Argument, Opaque, json_from_value


@pytest.mark.parametrize(
    ("shard", "grid"),
    [(ONE_RANGE, (((0, 0), (7, 6)),)), (TWO_RANGES, (((0, 0), (7, 7)), ((0, 8), (3, 8))))],
)
def test_a_shard_is_read_with_all_its_core_ranges(shard: str, grid: tuple[object, ...]) -> None:
    argument, damage = repaired_argument(sharded_argument(shard)[UNPARSED], position=0)

    tensor = ttnn_tensor(argument.value)
    assert tensor is not None
    assert tensor.memory is not None
    assert tensor.memory.shard == TtnnShard(shape=(224, 32), grid=grid, orientation="ROW_MAJOR")  # type: ignore[arg-type]
    assert damage.repaired
    assert DamageKind.RANGE in damage.kind


def test_the_text_as_it_stood_is_kept() -> None:
    element = sharded_argument()[UNPARSED]

    _, damage = repaired_argument(element, position=0)

    assert damage.text == element["element_info"]


def test_a_pair_of_numbers_gets_its_brackets() -> None:
    text = '{"arg8": {"SDPAProgramConfig":{"compute_grid":8,8, "q_chunk_size":64}}}'

    argument, damage = repaired_argument({"element_info": text}, position=3)

    assert (argument.name, argument.position) == ("arg8", 3)
    assert json_from_value(argument.value) == {"SDPAProgramConfig": {"compute_grid": [8, 8], "q_chunk_size": 64}}
    assert damage.kind == DamageKind.PAIR


def test_a_list_inside_quotes_is_a_list() -> None:
    text = '{"arg0": "[{"storage":{},"tensor_spec":{"logical_shape":[1, 32]}}, {"storage":{}}]"}'

    argument, damage = repaired_argument({"element_info": text}, position=0)

    first = {"storage": {}, "tensor_spec": {"logical_shape": [1, 32]}}
    assert json_from_value(argument.value) == [first, {"storage": {}}]
    assert damage.kind == DamageKind.QUOTED


def test_what_the_tracer_left_out_is_not_made_up() -> None:
    argument, damage = repaired_argument({"element_info": '{"arg6": {"Topology":{...}}}'}, position=6)

    assert argument == Argument(
        name="arg6", value=Opaque(class_name=UNPARSED, text='{"arg6": {"Topology":{...}}}'), position=6
    )
    assert (damage.kind, damage.repaired, damage.where) == (DamageKind.ELIDED, False, "arg6")


@pytest.mark.parametrize("element", [{"element_info": "{{{"}, {"error": "?"}, "text", None, {"element_info": "[1]"}])
def test_anything_else_is_kept_as_text(element: object) -> None:
    argument, damage = repaired_argument(element, position=2)

    assert argument.name == "arg2"
    assert isinstance(argument.value, Opaque)
    assert damage.kind == DamageKind.UNKNOWN
    assert not damage.repaired


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[ unsupported type , std::reference_wrapper<X>]", DamageKind.UNSUPPORTED),
        ("[{...}, {...}]", DamageKind.ELIDED_LIST),
    ],
)
def test_an_argument_that_says_it_is_not_there_is_flagged(text: str, kind: DamageKind) -> None:
    damage = unrecorded(Argument(name="arg1", value=text))

    assert damage is not None
    assert (damage.where, damage.text) == ("arg1", text)
    assert DamageKind(damage.kind) is kind


@pytest.mark.parametrize("value", ["nullopt", "3", 3, None])
def test_an_argument_that_is_there_is_not_flagged(value: object) -> None:
    assert unrecorded(Argument(name="arg1", value=value)) is None  # type: ignore[arg-type]
