"""Layouts of ports with generated truth: random shapes, random compositions, values that are right and wrong."""

import random
from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from torchstone.record.reference import GoldenData, GoldenTensor, Rebuild, Role, Status, TensorVerdict, Weights
from torchstone.reference import compare
from torchstone.reference.golden_files import Golden
from torchstone.reference.layouts import explain, likely_layouts, possible_layouts

SIZES = (1, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33)
GENERATED = 60


def golden_of(**tensors: Tensor) -> Golden:
    """Golden data with these outputs."""
    about = tuple(
        GoldenTensor(
            name=f"outputs/{name}",
            role=Role.OUTPUT,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
        )
        for name, tensor in tensors.items()
    )
    data = GoldenData(
        model="net", rebuild=Rebuild(model="net"), seed=0, dtypes=(), versions={}, threads=1, created="", inputs=None,
        outputs=None, tensors=about, weights=Weights(sha256="", tensors=0, size_bytes=0),
    )  # fmt: skip
    return Golden(data=data, tensors={f"outputs/{name}": tensor for name, tensor in tensors.items()})


def verdict(golden: Tensor, candidate: Tensor) -> TensorVerdict:
    return compare(golden_of(y=golden), {"y": candidate}).verdicts[0]


def tiles(tensor: Tensor, fill: float = 0.0) -> Tensor:
    """Rows and columns padded to 32."""
    while tensor.dim() < 2:
        tensor = tensor.unsqueeze(0)
    rows, columns = tensor.shape[-2:]
    return pad(tensor, (0, -columns % 32, 0, -rows % 32), value=fill)


def image(tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1)


X = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randn(2, 7, 64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("golden", "candidate", "words"),
    [
        (X, image(X), ("permute NHWC to NCHW",)),
        (X, image(X).reshape(1, 1, 70, 3), ("unflatten [1, 1, N*H*W, C]", "permute NHWC to NCHW")),
        (
            X,
            tiles(image(X).reshape(1, 1, 70, 3)),
            ("drop tile padding", "unflatten [1, 1, N*H*W, C]", "permute NHWC to NCHW"),
        ),
        (X, tiles(image(X)), ("drop tile padding", "permute NHWC to NCHW")),
        (X, tiles(X), ("drop tile padding",)),
        (
            X,
            tiles(image(X)).reshape(1, 1, -1, 32),
            (
                "drop tile padding inside the flattened rows",
                "unflatten [1, 1, N*H*W, C]",
                "permute NHWC to NCHW",
            ),
        ),
        (X, X.reshape(-1), ("reshape to [2, 3, 5, 7]",)),
        (TOKENS, TOKENS.unsqueeze(0), ("squeeze leading dimensions",)),
        (TOKENS[:1], TOKENS[0], ("unsqueeze leading dimensions",)),
        (TOKENS[0], tiles(TOKENS[0])[None, None], ("drop tile padding", "squeeze leading dimensions")),
        (TOKENS[0], TOKENS[0].T, ("transpose",)),
        (
            TOKENS,
            TOKENS.reshape(2, 7, 4, 16).transpose(1, 2),
            ("permute(0, 2, 1, 3)", "reshape to [2, 7, 64]"),
        ),
        (
            TOKENS,
            tiles(TOKENS.reshape(2, 7, 4, 16).transpose(1, 2)),
            ("drop tile padding", "permute(0, 2, 1, 3)", "reshape to [2, 7, 64]"),
        ),
        (torch.tensor(2.5), tiles(torch.tensor(2.5))[None, None], ("drop tile padding", "squeeze leading dimensions")),
    ],
)
def test_the_layouts_of_ports_are_undone_and_named(golden: Tensor, candidate: Tensor, words: tuple[str, ...]) -> None:
    found = verdict(golden, candidate)

    assert found.status is Status.PASSED
    assert found.layout == words
    assert f"matches after: {', '.join(words)}" in found.detail
    assert found.candidate_shape == tuple(candidate.shape)


def sizes(tensor: Tensor) -> list[int]:
    return [size for size in tensor.shape if size > 1]


def random_port(rng: random.Random, golden: Tensor) -> Tensor:
    """A random composition: permute, merge neighbours, add dimensions of size 1, pad to tiles."""
    order = list(range(golden.dim()))
    if rng.random() < 0.6:
        rng.shuffle(order)
    port = golden.permute(order)
    if rng.random() < 0.5 and port.dim() > 1:
        first = rng.randrange(port.dim() - 1)
        port = port.flatten(first, rng.randrange(first + 1, port.dim()))
    if rng.random() < 0.5:
        port = port.reshape(*(1,) * rng.randrange(3), *port.shape)
    if rng.random() < 0.5:
        port = tiles(port, fill=rng.choice([0.0, 3.0]))
    return port.contiguous()


@pytest.mark.parametrize("seed", range(GENERATED))
def test_any_composition_is_found_and_wrong_values_stay_wrong_in_it(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - test data
    shape = [rng.choice(SIZES) for _ in range(rng.randrange(1, 5))]
    while prod(shape) > 20_000:
        shape.remove(max(shape))
    generator = torch.Generator().manual_seed(seed)
    golden = torch.randn(shape, generator=generator)
    port = random_port(rng, golden)

    found = verdict(golden, port)

    if found.status is not Status.PASSED:  # nothing shows that the port has this order
        assert sizes(port) == sizes(golden)
        assert "matches after: " in found.detail
        return
    assert found.errors is not None
    assert found.errors.equal
    if prod(shape) > 8:
        for spoilt in (golden * 1.5, golden + 2, torch.randn(shape, generator=generator), golden.flip(0).roll(1, -1)):
            if spoilt.shape == golden.shape and not torch.equal(spoilt, golden):
                again = random.Random(seed)  # noqa: S311 - test data
                wrong = verdict(golden, random_port(again, spoilt))
                assert wrong.status is not Status.PASSED, (shape, port.shape, wrong)


def test_the_layout_of_wrong_values_is_named_where_it_is_certain() -> None:
    found = verdict(X, tiles(image(X * 1.5)))

    assert found.status is Status.WRONG_VALUES
    assert "wrong even after: drop tile padding, permute NHWC to NCHW" in found.detail


def test_what_fits_no_layout_has_a_wrong_shape() -> None:
    unrelated = torch.randn(2, 5, 7, 3, generator=torch.Generator().manual_seed(9))

    assert verdict(X, unrelated).status is Status.WRONG_SHAPE
    assert verdict(X, torch.ones(4, 4)).status is Status.WRONG_SHAPE


SQUARE = torch.randn(32, 32, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("arranged", [SQUARE.T, SQUARE.T[None, None]])
def test_a_transposed_square_alone_is_wrong_and_its_order_is_named(arranged: Tensor) -> None:
    found = verdict(SQUARE, arranged)

    assert found.status is Status.WRONG_VALUES
    assert "matches after: " in found.detail
    assert "transpose, but nothing else in the port has this order" in found.detail
    assert found.errors is not None
    assert not found.errors.equal


def test_a_square_in_golden_order_has_no_layout() -> None:
    symmetric = SQUARE + SQUARE.T

    assert verdict(SQUARE, SQUARE).layout == ()
    assert verdict(symmetric, symmetric.T).layout == ()
    assert verdict(torch.ones(4, 4), torch.ones(4, 4)).layout == ()


CUBES = {f"y{place}": torch.randn(2, 8, 8, 8, generator=torch.Generator().manual_seed(place)) for place in range(5)}


def test_equal_sizes_are_in_the_order_that_other_tensors_show() -> None:
    """NHWC: all tensors with equal sizes are so, or one whose sizes leave no choice is."""
    everywhere = compare(golden_of(**CUBES), {name: image(one) for name, one in CUBES.items()})
    shown = compare(golden_of(x=X, y=CUBES["y0"]), {"x": image(X), "y": image(CUBES["y0"])})

    for found in (everywhere, shown):
        assert found.passed
        assert {one.layout for one in found.verdicts} == {("permute NHWC to NCHW",)}
        assert any("the golden shape, but the dimensions are in another order" in note for note in found.notes)


@pytest.mark.parametrize("usual", [lambda x: x, image])
def test_one_tensor_in_another_order_than_the_others_is_wrong(usual: Callable[[Tensor], Tensor]) -> None:
    port = {name: usual(one) for name, one in CUBES.items()}
    port["y3"] = usual(CUBES["y3"].transpose(2, 3))

    found = compare(golden_of(**CUBES), port)

    assert found.first_wrong == "outputs/y3"
    assert found.counts == {"passed": 4, "wrong values": 1}
    assert "but nothing else in the port has this order" in found.verdicts[3].detail


def test_one_flattened_tensor_in_another_order_than_the_others_is_suspicious() -> None:
    """Rows and columns of one image are exchanged, which its shape does not show."""
    port = {name: tiles(image(one).reshape(1, 1, -1, 8)) for name, one in CUBES.items()}
    port["y3"] = tiles(image(CUBES["y3"].transpose(2, 3)).reshape(1, 1, -1, 8))

    found = compare(golden_of(**CUBES), port)

    assert found.counts == {"passed": 4, "suspicious": 1}
    assert "other tensors of these shapes match after: drop tile padding, unflatten" in found.verdicts[3].detail


def test_what_is_cut_off_must_be_padding() -> None:
    one_more = torch.cat((TOKENS, TOKENS[:, :1] * 2), dim=1)

    assert verdict(TOKENS, one_more).status is Status.WRONG_SHAPE
    assert verdict(TOKENS, pad(TOKENS, (0, 0, 0, 1))).layout == ("drop padding from [2, 8, 64] to [2, 7, 64]",)
    assert verdict(TOKENS, pad(TOKENS, (0, 0, 0, 1), value=float("nan"))).status is Status.PASSED


@pytest.mark.parametrize("spoil", [lambda x: x * 1.2 + x.T * 0.5, lambda x: x.flip(0), lambda x: x.T * 2])
def test_a_square_with_wrong_values_is_not_explained_away(spoil: Callable[[Tensor], Tensor]) -> None:
    assert verdict(SQUARE, spoil(SQUARE)).status is Status.WRONG_VALUES


def test_a_constant_fits_in_every_order_and_gets_the_simplest() -> None:
    found = verdict(torch.ones(2, 3, 4, 5), torch.ones(2, 4, 5, 3))

    assert found.status is Status.PASSED
    assert found.layout == ("permute NHWC to NCHW",)
    assert verdict(torch.ones(2, 3, 4, 5), torch.zeros(2, 4, 5, 3)).status is not Status.PASSED


def test_a_sparse_tensor_is_recognised_by_its_few_values() -> None:
    golden = torch.zeros(40, 50, 60)
    golden[3, 4, 5], golden[30, 20, 10] = 7.0, -2.0

    found = verdict(golden, golden.permute(2, 0, 1))

    assert found.layout == ("permute(1, 2, 0)",)
    assert found.errors is not None
    assert found.errors.equal


def test_what_is_in_the_padding_does_not_count_but_nan_is_reported() -> None:
    found = verdict(X, tiles(X, fill=float("nan")))

    assert found.status is Status.PASSED
    assert f"{2 * 3 * (32 * 32 - 35)} NaN in the padding" in found.detail


def test_padding_in_front_is_not_padding() -> None:
    assert verdict(TOKENS[0], pad(TOKENS[0], (0, 0, 25, 0))).status is not Status.PASSED


def test_integers_and_nan_are_recognised_too() -> None:
    ids = torch.arange(70).reshape(2, 5, 7)
    holes = X.clone()
    holes[0, 1, 2, 3] = float("nan")

    assert verdict(ids, ids.permute(2, 0, 1)).layout == ("permute(1, 2, 0)",)
    assert verdict(holes, image(holes)).status is Status.PASSED
    assert verdict(X, image(holes)).status is Status.WRONG_NON_FINITE


def test_the_search_is_bounded_and_the_same_every_time() -> None:
    cube = torch.randn((3,) * 7, generator=torch.Generator().manual_seed(4))

    assert len(possible_layouts((2,) * 6, (64,))) == 720
    assert possible_layouts((3,) * 7, (3,) * 7) == ()
    assert likely_layouts(X, image(X)) == likely_layouts(X, image(X))
    assert explain(cube, cube.permute(6, 5, 4, 3, 2, 1, 0), torch.equal) == ""


def test_an_empty_tensor_has_no_layout() -> None:
    assert verdict(torch.empty(0, 3), torch.empty(3, 0)).status is Status.WRONG_SHAPE
    assert verdict(torch.empty(0, 3), torch.empty(0, 3)).status is Status.PASSED


def test_values_that_fit_no_layout_are_judged_in_the_one_of_the_other_tensors() -> None:
    golden = golden_of(a=X, b=X.cos(), c=TOKENS)
    unrelated = torch.randn(2, 5, 7, 3, generator=torch.Generator().manual_seed(9))

    found = compare(golden, {"a": tiles(image(X)), "b": tiles(unrelated), "c": torch.ones(1, 99)}).verdicts

    assert [one.status for one in found] == [Status.PASSED, Status.WRONG_VALUES, Status.WRONG_SHAPE]
    assert "permute NHWC to NCHW, the layout of other tensors" in found[1].detail
    assert found[1].errors is not None
