import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.record import strategies
from torchstone.record import key
from torchstone.record.base import Record
from torchstone.record.config import Configuration
from torchstone.record.key import KEY_VERSION, config_key
from torchstone.record.op import OpSignature
from torchstone.record.tensor import TensorSpec
from torchstone.record.value import Absent, Argument, Atom, Entries, Fields, Items, Opaque, Value


class Tagged(Record, frozen=True, kw_only=True):
    tags: dict[str, int]


class Tensors(Record, frozen=True, kw_only=True):
    specs: tuple[TensorSpec, ...]


class Wider(Record, frozen=True, kw_only=True):
    tags: dict[str, int]
    added_later: str = ""


def scaled(by: Value) -> OpSignature:
    spec = TensorSpec(shape=(2, 3), dtype="float32", stride=(3, 1))
    return OpSignature(
        op="aten.mul.Scalar",
        arguments=(Argument(name="self", value=spec), Argument(name="other", value=by)),
        output=spec,
    )


def test_the_rule_is_pinned() -> None:
    """A change of this literal means that keys in people's databases no longer fit: raise KEY_VERSION with it."""
    assert KEY_VERSION == 1
    assert config_key(scaled(0.5)) == "k1-1cf6aba3c75c8e4dade91c672ecc2db2e3efc114caed1e989f08b19cd0c37479"


@pytest.mark.parametrize(("name", "text"), [("device", "cpu"), ("layout", "strided")])
def test_a_key_does_not_depend_on_the_object_that_holds_a_text(name: str, text: str) -> None:
    put_together = "".join(list(text))
    by_default = TensorSpec(shape=(2, 3), dtype="float32")
    given_as_text = replace(by_default, **{name: put_together})

    assert given_as_text == by_default
    assert config_key(Tensors(specs=(given_as_text,))) == config_key(Tensors(specs=(by_default,)))


def test_defaults_of_what_a_key_covers_are_recognized_by_identity() -> None:
    """An encoder omits a default only if it is the same object: texts and floats would be omitted now and then."""
    alone_of_their_kind = {None, True, False, "", ()}
    covered: set[type[Record]] = {Configuration, Argument, TensorSpec, Atom, Items, Entries, Fields, Opaque, Absent}

    kept = [(one, field) for one in covered for field in msgspec.structs.fields(one) if not field.required]

    assert covered >= {one for one in get_args(Value) if issubclass(one, Record)}
    assert [
        (one.__name__, field.name)
        for one, field in kept
        if field.default is not msgspec.NODEFAULT and field.default not in alone_of_their_kind
    ] == []


@given(strategies.op_signatures, strategies.op_signatures)
def test_keys_are_equal_exactly_when_configurations_are(one: OpSignature, other: OpSignature) -> None:
    assert (config_key(one) == config_key(other)) == (repr(one) == repr(other))


@given(strategies.op_signatures)
def test_an_equal_configuration_made_apart_has_the_same_key(one: OpSignature) -> None:
    twin = msgspec.json.decode(msgspec.json.encode(one), type=OpSignature)

    assert config_key(twin) == config_key(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0, False), (0, None), (None, "None"), (1, "1"), (0.0, -0.0), ("", None),
     ("inf", Atom(kind="float", text="inf")), ("e\u0301", "\u00e9")],
)  # fmt: skip
def test_values_that_look_alike_have_keys_of_their_own(one: Value, other: Value) -> None:
    assert config_key(scaled(one)) != config_key(scaled(other))


def test_the_order_of_a_dictionary_does_not_count() -> None:
    assert config_key(Tagged(tags={"a": 1, "b": 2})) == config_key(Tagged(tags={"b": 2, "a": 1}))


def test_a_field_added_later_leaves_old_keys_as_they_are() -> None:
    assert config_key(Wider(tags={"a": 1})) == config_key(Tagged(tags={"a": 1}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_float_that_json_cannot_hold_fails_loudly(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        config_key(scaled(value))


@given(strategies.op_signatures)
def test_the_fast_way_writes_what_the_rule_says(one: OpSignature) -> None:
    parts = {"config": msgspec.to_builtins(one, str_keys=True), "key_version": KEY_VERSION}
    by_the_rule = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)

    assert key._canonical(one) == by_the_rule.encode()


@pytest.mark.parametrize(
    "value", [1e16, 1e-7, 5e-324, 0.1, -0.0, 2**63, 2**70, "\x7f", "\u2028", "a/b", "é", '"', None]
)
def test_values_that_encoders_spell_apart_follow_the_rule(value: Value) -> None:
    test_the_fast_way_writes_what_the_rule_says.hypothesis.inner_test(scaled(value))  # type: ignore[attr-defined]
