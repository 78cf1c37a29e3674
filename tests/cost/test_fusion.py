import torch
from torch import Tensor

from tests.cost.calls import cost_of
from torchstone.record.cost import Category, Traffic

X = torch.ones(16, 64)
SIZE = 16 * 64 * 4


def moved(traffic: Traffic) -> tuple[int, int]:
    return sum(traffic.read_bytes.values()), sum(traffic.written_bytes.values())


def test_a_pointwise_chain_reads_once_and_writes_once() -> None:
    def chain(x: Tensor) -> Tensor:
        return torch.relu(x * 2 + 1).exp()

    levels = cost_of(chain, X).traffic
    assert moved(levels.unfused) == (4 * SIZE, 4 * SIZE)
    assert moved(levels.fused) == (SIZE, SIZE)


def test_a_normalisation_written_out_is_one_kernel() -> None:
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5))

    assert moved(cost_of(norm, X, torch.ones(64)).traffic.fused) == (SIZE + 256, SIZE)


def test_a_matmul_ends_a_chain_and_begins_another() -> None:
    weight = torch.ones(64, 64)

    def layers(x: Tensor, weight: Tensor) -> Tensor:
        return torch.relu((x * 2) @ weight).exp()

    fused = cost_of(layers, X, weight).traffic.fused
    assert moved(fused) == (3 * SIZE + 64 * 64 * 4, 3 * SIZE)


def test_a_result_that_leaves_and_comes_back_is_not_kept_on_chip() -> None:
    weight = torch.ones(64, 64)

    def residual(x: Tensor, weight: Tensor) -> Tensor:
        kept = x * 2
        return kept @ weight + kept

    read, written = moved(cost_of(residual, X, weight).traffic.fused)
    assert read == SIZE + (SIZE + 64 * 64 * 4) + 2 * SIZE
    assert written == 3 * SIZE


def test_the_scores_of_written_out_attention_stay_on_chip() -> None:
    query = torch.ones(2, 32, 8)
    one = 2 * 32 * 8 * 4

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)) * 0.5
        return torch.bmm(torch.softmax(scores, dim=-1), value)

    levels = cost_of(attention, query, query.clone(), query.clone()).traffic
    assert moved(levels.fused) == (3 * one, one)
    assert moved(levels.unfused)[0] > 4 * 2 * 32 * 32


def test_halves_of_one_tensor_are_read_as_one() -> None:
    def rotate(x: Tensor) -> Tensor:
        return x * 2 + torch.cat((-x[:, 32:], x[:, :32]), dim=-1)

    assert moved(cost_of(rotate, X).traffic.fused) == (SIZE, SIZE)


def test_what_is_written_to_a_given_tensor_counts() -> None:
    def update(state: Tensor, x: Tensor) -> Tensor:
        state.add_(x * 2)
        return x

    assert moved(cost_of(update, X.clone(), X).traffic.fused)[1] == SIZE


def test_fused_traffic_is_kept_apart_by_what_it_holds() -> None:
    layer = torch.nn.Linear(64, 64, bias=False)
    fused = cost_of(layer, X).traffic.fused
    assert fused.read_bytes == {Category.WEIGHTS: 64 * 64 * 4, Category.KV_CACHE: 0, Category.ACTIVATIONS: SIZE}


def test_a_softmax_over_logits_is_no_attention() -> None:
    weight = torch.ones(64, 32)
    logits = 16 * 32 * 4

    def head(x: Tensor, weight: Tensor) -> Tensor:
        return torch.softmax(x @ weight, dim=-1)

    assert moved(cost_of(head, X, weight).traffic.fused) == (SIZE + 64 * 32 * 4 + logits, 2 * logits)
