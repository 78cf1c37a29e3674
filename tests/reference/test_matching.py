"""Which tensor of a port is which golden one, for ports that use their own names, shapes and order."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.reference.test_layouts import golden_of, tiles
from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.reference import Comparison, MatchedBy, Role, Status
from torchstone.reference import compare
from torchstone.reference.golden_files import Golden
from torchstone.reference.make import Request, make_golden

LAYERS = tuple(map(str, range(6)))


def golden_layers() -> Golden:
    """Six layers of the same shape; the output of the last is that of the model."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in LAYERS))
    return make_golden(model, torch.randn(5, 16), Request(watched=LAYERS))


def results_of(golden: Golden) -> dict[str, Tensor]:
    """Outputs of the model and its modules."""
    return golden.named(Role.MODULE_OUTPUT) | golden.named(Role.OUTPUT)


def matched(found: Comparison) -> dict[str, str]:
    """Port name -> golden name."""
    return {one.port_name: one.name for one in found.verdicts if one.matched_by is not None}


def test_a_port_with_its_own_names_in_order_is_matched_by_value() -> None:
    golden = golden_layers()
    port = {f"t{place}": tensor for place, tensor in enumerate(results_of(golden).values())}

    found = compare(golden, port)

    assert found.passed
    assert list(matched(found).values()) == list(results_of(golden))
    by = {one.name: one.matched_by for one in found.verdicts if one.role is not Role.INPUT}
    assert by["modules/0/outputs"] is MatchedBy.VALUE
    assert by["modules/5/outputs"] is MatchedBy.PATTERN  # the output of the model has the same values
    assert by["outputs"] is MatchedBy.VALUE


@pytest.mark.parametrize("seed", range(5))
def test_names_layouts_and_order_may_all_differ(seed: int) -> None:
    golden = golden_layers()
    alike = ("modules/5/outputs", "outputs")
    unlike = {name: tensor for name, tensor in results_of(golden).items() if name not in alike}
    items = list(unlike.items())
    random.Random(seed).shuffle(items)  # noqa: S311 - test data
    port = {f"x{place}": tiles(tensor.T)[None] for place, (_, tensor) in enumerate(items)}

    found = compare(golden, port, partial=True)

    assert found.passed
    assert found.counts["passed"] == len(unlike)
    assert matched(found) == {f"x{place}": name for place, (name, _) in enumerate(items)}


def test_of_golden_tensors_with_the_same_values_the_output_is_matched_first() -> None:
    golden = golden_layers()
    found = compare(golden, {"logits": golden.tensors["outputs"], "1": golden.tensors["modules/1/outputs"]})

    assert matched(found) == {"1": "modules/1/outputs", "logits": "outputs"}
    assert found.incomplete  # four modules were not given


def test_a_tensor_that_is_there_twice_is_matched_once() -> None:
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    found = compare(golden_of(a=a, b=b), {"b": b, "x": a, "y": a.clone()})

    assert found.passed
    assert found.unknown == ("y (the values of x)",)


def test_two_tensors_that_nearly_fit_one_golden_tensor_are_not_guessed() -> None:
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    port = {"b": b, "x": a + 0.05 * torch.randn(4, 6), "y": a + 0.05 * torch.randn(4, 6)}
    found = compare(golden_of(a=a, b=b), port)

    assert found.verdicts[0].status is Status.MISSING
    assert len(found.unknown) == 2


def test_wrong_tensors_follow_the_pattern_of_names_in_any_order() -> None:
    golden = golden_layers()
    names = {f"block{int(place) + 1}_out": f"modules/{place}/outputs" for place in LAYERS} | {"y": "outputs"}
    items = [(own, golden.tensors[name]) for own, name in names.items()]
    random.Random(3).shuffle(items)  # noqa: S311 - test data
    port = {own: torch.randn_like(one) if own > "block4" else one for own, one in items}

    found = compare(golden, port, partial=True)

    assert found.first_wrong == "modules/3/outputs"
    assert {own: name for own, name in matched(found).items() if own != "y"} == {
        own: name for own, name in names.items() if own != "y"
    }


def test_a_wrong_tensor_is_placed_by_the_end_of_its_name() -> None:
    class Net(nn.Module):
        """Two blocks inside, so that paths have several parts."""

        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleDict({part: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)) for part in "ab"})

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.encoder["a"](self.encoder["b"](x)))

    watched = tuple(f"encoder.{part}.{place}" for part in "ab" for place in range(2))
    golden = make_golden(Net(), torch.randn(4, 8), Request(watched=watched))
    port = {f"tt.{name.removeprefix('encoder.')}.out": torch.randn(4, 8) for name in watched}

    found = compare(golden, port | {"outputs": golden.tensors["outputs"]})

    assert {own: name for own, name in matched(found).items() if own != "outputs"} == {
        f"tt.{name.removeprefix('encoder.')}.out": f"modules/{name}/outputs" for name in watched
    }
    assert found.first_wrong == "modules/encoder.b.0/outputs"


def test_values_of_another_module_do_not_hide_a_wrong_one_from_the_pattern_of_names() -> None:
    """Without its residual, layer 4 returns what layer 2 returned."""
    golden = golden_layers()
    port = {f"tt{place}": golden.tensors[f"modules/{place}/outputs"] for place in ("0", "1", "3", "4", "5")}
    port |= {"tt4": golden.tensors["modules/2/outputs"], "outputs": golden.tensors["outputs"]}

    assert compare(golden, port).first_wrong == "modules/4/outputs"


@pytest.mark.parametrize("spoil", [lambda x: x * 1.5, lambda x: x + 0.5, torch.randn_like])
def test_a_wrong_tensor_under_another_name_is_compared_with_its_counterpart(
    spoil: Callable[[Tensor], Tensor],
) -> None:
    golden = golden_layers()
    port = {f"t{place}": tensor for place, tensor in enumerate(results_of(golden).values())}
    for late in ("t3", "t4", "t5", "t6"):
        port[late] = spoil(port[late])

    found = compare(golden, port)

    assert found.first_wrong == "modules/3/outputs"
    assert list(matched(found)) == list(port)


def test_one_golden_name_does_not_keep_the_others_from_being_matched_by_order() -> None:
    golden = golden_layers()
    port = {f"t{place}": golden.tensors[f"modules/{place}/outputs"] for place in LAYERS}
    port |= {"t3": -port["t3"], "outputs": golden.tensors["outputs"]}

    found = compare(golden, port)

    assert found.first_wrong == "modules/3/outputs"
    assert found.counts["passed"] == 6


def test_a_tensor_that_is_something_else_is_not_called_wrong() -> None:
    golden = golden_layers()
    port = dict(results_of(golden)) | {"debug": torch.randn(5, 16)}
    del port["modules/2/outputs"]

    found = compare(golden, port)

    assert found.passed
    assert [
        one.name for one in found.verdicts if one.status is Status.NOT_GIVEN and one.role is Role.MODULE_OUTPUT
    ] == ["modules/2/outputs"]
    assert found.unknown == ("debug",)


def test_separators_and_case_do_not_matter() -> None:
    golden = golden_layers()
    names = {"Modules.0.Outputs": "modules/0/outputs", "1.output": "modules/1/outputs", "OUTPUT": "outputs"}
    port = {own: golden.tensors[full] for own, full in names.items()}

    found = compare(golden, port, partial=True)

    assert matched(found) == names
    assert all(one.matched_by is MatchedBy.NAME for one in found.verdicts if one.matched_by)


# --- The map ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("map.toml", '"layer_*" = "*"\nlogits = "outputs"\n'),
        ("map.json", '{"layer_*": "modules/*/outputs", "logits": "outputs"}'),
    ],
)
def test_a_map_with_patterns_gives_golden_names(name: str, text: str, tmp_path: Path) -> None:
    golden = golden_layers()
    (tmp_path / name).write_text(text)
    port = {f"layer_{place}": -golden.tensors[f"modules/{place}/outputs"] for place in LAYERS}

    found = compare(golden, port | {"logits": golden.tensors["outputs"]}, names=tmp_path / name)

    assert matched(found)["layer_4"] == "modules/4/outputs"
    assert {one.matched_by for one in found.verdicts} == {None, MatchedBy.MAP}
    assert (found.first_wrong, found.verdicts[-1].status) == ("modules/0/outputs", Status.PASSED)


def test_a_literal_entry_wins_over_a_pattern_and_over_the_name() -> None:
    golden = golden_layers()
    port = {"outputs": golden.tensors["modules/2/outputs"]}

    found = compare(golden, port, names={"*": "5", "outputs": "2"}, partial=True)

    assert matched(found) == {"outputs": "modules/2/outputs"}
    assert found.passed


def test_toml_keys_without_quotes_are_names_with_dots(tmp_path: Path) -> None:
    golden = golden_layers()
    (tmp_path / "map.toml").write_text('net.last = "outputs"\n')

    assert compare(golden, {"net.last": golden.tensors["outputs"]}, names=tmp_path / "map.toml", partial=True).passed


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            {"a": "modules/9/outputs"},
            r"'modules/9/outputs', which the golden data does not have; did you mean",
        ),
        ({"a": 3}, "'a' is mapped to 3, not to a name"),
        ({"a": "outputs", "b": ["outputs", "1"]}, "gives outputs to a and to b; map each golden tensor once"),
        ({"a": ["1", "2", "3"]}, r"makes modules/1/outputs, .* of a \[5, 16\], which no layout gives"),
    ],
)
def test_a_map_that_cannot_be_followed_is_refused(names: dict[str, object], words: str) -> None:
    golden = golden_layers()
    port = {"a": golden.tensors["outputs"], "b": golden.tensors["outputs"]}

    with pytest.raises(InputError, match=words):
        compare(golden, port, names=names)


@pytest.mark.parametrize(("name", "text"), [("a.toml", "x = ["), ("a.json", "[1]"), ("gone.toml", None)])
def test_a_map_that_cannot_be_read_is_refused(name: str, text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)

    with pytest.raises((InputError, UnreadableFileError), match=f"--map .*{name}.*write lines such as"):
        compare(golden_layers(), torch.ones(1), names=tmp_path / name)


# --- What was not given ---


def test_most_tensors_not_given_is_not_a_pass() -> None:
    golden = golden_layers()

    found = compare(golden, {"outputs": golden.tensors["outputs"]})

    assert not found.passed
    assert found.first_wrong is None
    assert found.incomplete == "6 of 7 outputs of the model and its modules were not given"
    assert "--partial" in found.next_step
    assert compare(golden, {"outputs": golden.tensors["outputs"]}, partial=True).passed


def test_inputs_need_not_be_given() -> None:
    golden = golden_layers()

    assert compare(golden, results_of(golden)).incomplete == ""
    assert compare(golden, results_of(golden)).passed
