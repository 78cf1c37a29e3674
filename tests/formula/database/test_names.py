import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.formula.database.files import (
    key_of,
    nearest,
    path_of,
    public_alias,
    short_name,
    split_variant,
    with_variant,
)

segments = st.text(alphabet="ab_-du<>1", min_size=1, max_size=8)
paths = st.lists(segments, min_size=1, max_size=4).map(".".join)


def test_a_key_keeps_single_underscores() -> None:
    path = "transformers.models.llama.modeling_llama.LlamaAttention"

    assert key_of(path) == "transformers__models__llama__modeling_llama__LlamaAttention"
    assert path_of(key_of(path)) == (path, "")


@given(paths, st.sampled_from(["", "eager", "no cache"]))
def test_every_key_leads_back_to_its_path(path: str, variant: str) -> None:
    assert path_of(key_of(path, variant)) == (path, variant)


@given(paths, paths)
def test_two_paths_never_share_a_key(one: str, other: str) -> None:
    assert (key_of(one) == key_of(other)) is (one == other)


@pytest.mark.parametrize("path", ["a_.b", "a._b", "a__b", "a.b", "a-u.b", "_.__._"])
def test_awkward_names_are_kept(path: str) -> None:
    assert path_of(key_of(path)) == (path, "")


def test_a_variant_stands_in_square_brackets() -> None:
    assert split_variant("pkg.Net[eager]") == ("pkg.Net", "eager")
    assert split_variant("pkg.Net") == ("pkg.Net", "")
    assert with_variant("pkg.Net", "eager") == "pkg.Net[eager]"


def test_classes_of_torch_nn_have_a_public_name() -> None:
    assert public_alias("torch.nn.modules.linear.Linear") == "torch.nn.Linear"
    assert public_alias("torch.nn.Linear") is None


def test_a_misspelt_class_name_finds_its_path() -> None:
    known = ["torch.nn.modules.linear.Linear", "a.b.LlamaAttention"]

    assert nearest("LlamaAtention", known) == ["a.b.LlamaAttention"]
    assert nearest("zzz", known) == []


def test_the_short_name_is_the_class() -> None:
    assert short_name("a.b.Net") == "Net"
    assert short_name("Net") == "Net"
