from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutput

from tests.backends.nets import Cache, Output, Pair, nested
from torchstone.numerics.pytree import FlatModule, flatten, leaves, named_tensors, unflatten

A, B, C = torch.ones(1), torch.ones(2), torch.ones(3)


def doubled(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor * 2 for tensor in tensors]


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (A, 1),
        ([A, None, (B, 3)], 2),
        ({"a": A, 7: [B]}, 2),
        (Pair(A, B), 2),
        (Output(A, (B, C)), 3),
        (BaseModelOutput(last_hidden_state=A, hidden_states=(B, C)), 3),
        (OrderedDict(a=A), 1),
        (defaultdict(list, a=[A]), 1),
        (deque([A, B], maxlen=3), 2),
        (torch.Size([2, 3]), 0),
        (torch.max(torch.eye(2), 0), 2),
        ("text", 0),
        ([], 0),
    ],
)
def test_a_value_comes_back_in_its_own_shape(value: Any, count: int) -> None:
    tensors, structure = flatten(value)

    back = unflatten(structure, tensors)

    assert len(tensors) == count
    assert type(back) is type(value)
    assert [path for path, _ in leaves(back)] == [path for path, _ in leaves(value)]
    assert all(one is two for (_, one), (_, two) in zip(leaves(back), leaves(value), strict=True))


def test_other_tensors_take_the_places_and_the_original_stays() -> None:
    value = Output(A, (B,), cache=Cache(C, 5))

    tensors, structure = flatten(value)
    back = unflatten(structure, doubled(tensors))

    assert back.cache.seen == 5
    assert torch.equal(back.cache.layers[0]["keys"], C * 2)
    assert value.cache.layers[0]["keys"] is C
    assert value.logits is A


def test_one_tensor_in_two_places_stays_one() -> None:
    tensors, structure = flatten([A, {"again": A}])
    first, second = unflatten(structure, doubled(tensors))

    assert len(tensors) == 1
    assert first is second["again"]


def test_a_real_cache_is_looked_into() -> None:
    cache = DynamicCache()
    cache.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)

    tensors, structure = flatten(cache)
    back = unflatten(structure, doubled(tensors))

    assert len(tensors) == 2
    assert type(back) is DynamicCache
    assert back.get_seq_length() == 3
    assert float(back.layers[0].keys.max()) == 2.0
    assert float(cache.layers[0].keys.max()) == 1.0


def test_something_inside_itself_is_not_followed_forever() -> None:
    ring: dict[str, Any] = {"tensor": A}
    ring["self"] = ring

    tensors, structure = flatten(ring)

    assert tensors == [A]
    assert unflatten(structure, [B])["tensor"] is B


def test_leaves_have_the_paths_people_would_write() -> None:
    value = Output(A, (B,), cache=Cache(C, 5))

    assert [path for path, leaf in leaves(value) if isinstance(leaf, Tensor)] == [
        "logits",
        "hidden.0",
        "cache.layers.0.keys",
    ]


def test_a_field_of_a_named_tuple_has_its_name() -> None:
    assert [path for path, _ in leaves(Pair(A, B))] == list(Pair._fields)


def test_containers_keep_what_they_are_beside_their_parts() -> None:
    tensors, structure = flatten([defaultdict(list, a=[A]), deque([B], maxlen=3)])

    table, line = unflatten(structure, doubled(tensors))

    assert table.default_factory is list
    assert line.maxlen == 3
    assert torch.equal(line[0], B * 2)


def test_a_name_may_begin_the_paths_and_anything_separate_their_parts() -> None:
    assert dict(named_tensors({"a": [A, 3]}, "outputs", separator="/")) == {"outputs/a/0": A}
    assert dict(named_tensors(A)) == {"": A}


def test_a_flat_module_takes_and_gives_tensors_only() -> None:
    module, args, kwargs = nested()
    expected = module(*args, **kwargs)

    flat = FlatModule(module, args, kwargs)
    given = flat(*flat.example)

    assert len(flat.example) == 3
    assert all(isinstance(one, Tensor) for one in given)
    back = unflatten(flat.outputs, given)
    assert torch.equal(back.cache.layers[0]["keys"], expected.cache.layers[0]["keys"])
    assert back.cache.seen == 5
    assert kwargs["cache"].seen == 4
