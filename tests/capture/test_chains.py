from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from torchstone.capture.chains import MOST_PATHS, ChainLog
from torchstone.capture.op_log import Recording
from torchstone.record.config import SeenConfiguration, tensors_of


def chains_of(program: Callable[[], object]) -> dict[str, SeenConfiguration]:
    recording = Recording(chains=ChainLog())
    with recording.opened():
        program()
    assert recording.chains is not None
    found = recording.chains.records(source="a test", run="1", model="net")
    assert len({one.key for one in found}) == len(found)
    return {one.configuration.op.replace("aten.", "").replace(".default", ""): one for one in found}


def test_paths_of_two_to_five_ops_are_chains() -> None:
    x = torch.randn(3)

    found = chains_of(lambda: x.exp().sin().cos().tanh().neg().abs())

    assert sorted(map(len, (name.split(" > ") for name in found))) == [2] * 5 + [3] * 4 + [4] * 3 + [5] * 2
    assert found["exp > sin > cos"].calls == 1


def test_equal_chains_are_one_with_the_sum_of_calls() -> None:
    layer = nn.Linear(4, 4)

    def program() -> None:
        with torch.no_grad():
            for _ in range(3):
                layer(torch.ones(2, 4)).relu()

    found = chains_of(program)

    assert found["addmm > relu"].calls == 3
    assert {one.model for one in found["addmm > relu"].occurrences} == {"net"}


def test_the_same_tensor_in_two_steps_is_one_input() -> None:
    x = torch.randn(3)

    (found,) = chains_of(lambda: x.exp().add(x)).values()

    assert found.configuration.aliases == ((0, 1),)


def test_inputs_have_the_facts_of_the_calls() -> None:
    table, index = torch.randn(10, 4), torch.tensor([[3, 9]])

    found = chains_of(lambda: torch.nn.functional.embedding(index, table).relu())["embedding > relu"]

    assert [fact.values for fact in found.facts if fact.tensor == 1] == [(3, 9)]


def test_parts_of_a_list_are_told_apart() -> None:
    x = torch.randn(6)

    def program() -> None:
        first, second = x.split(3)
        second.exp()
        first.exp()

    assert len(chains_of(program)) == 1  # one name
    recording = Recording(chains=ChainLog())
    with recording.opened():
        program()
    assert recording.chains is not None
    assert len(recording.chains.records(source="a", run="1")) == 2


def test_a_value_that_was_overwritten_through_a_view_ends_a_chain() -> None:
    x = torch.randn(4)

    def program() -> None:
        y = x.exp()
        y.view(2, 2).add_(1)
        y.neg()

    found = chains_of(program)

    assert set(found) == {"exp > view", "view > add_.Tensor", "exp > view > add_.Tensor"}


def test_ops_in_place_are_steps() -> None:
    x = torch.randn(4)

    assert "exp > add_.Tensor > neg" in chains_of(lambda: x.exp().add_(1).neg())


def test_random_numbers_factories_and_sizes_from_values_are_inputs() -> None:
    x = torch.randn(4)

    def program() -> None:
        torch.rand(4).exp()
        torch.nn.functional.dropout(x.exp(), 0.5, training=True)
        x.exp().nonzero().abs()
        torch.empty(4).fill_(2.0)

    found = chains_of(program)

    assert not any(word in name for name in found for word in ("rand", "bernoulli", "nonzero", "empty"))


def test_views_alone_are_no_chain() -> None:
    x = torch.randn(4)

    assert not chains_of(lambda: x.view(2, 2).t().unsqueeze(0))


def test_joins_of_many_branches_are_limited_and_counted() -> None:
    recording = Recording(chains=ChainLog())
    with recording.opened():
        x = torch.ones(2).neg()
        for _ in range(4):
            x = torch.cat([x.exp() for _ in range(8)])[:2]
    assert recording.chains is not None

    assert recording.chains.skipped > 0
    ends: dict[int, int] = {}
    for one in recording.chains.records(source="a", run="1"):
        steps = one.configuration.op.count(" > ")
        ends[steps] = ends.get(steps, 0) + 1
    assert max(ends.values()) <= MOST_PATHS * 20


def test_recording_leaves_nothing_on_tensors_that_a_program_copies() -> None:
    layer = nn.Linear(2, 2)

    def program() -> None:
        layer(torch.ones(1, 2)).relu()
        deepcopy(layer)

    chains_of(program)

    assert not vars(layer.weight)


def test_numbers_of_facts_fit_the_tensors() -> None:
    x, index = torch.randn(4, 6), torch.zeros(4, 2, dtype=torch.int64)

    found = chains_of(lambda: x.topk(2)[0].gather(-1, index).mul(x[:, :2]).sum(-1))

    for one in found.values():
        assert all(fact.tensor < len(tensors_of(one.configuration)) for fact in one.facts)
