import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formula.entries import entry
from torchstone.formula.codegen.package import Place, places_of, snake
from torchstone.formula.database.files import key_of


def place(path: str, variant: str = "") -> Place:
    return places_of([entry(path, "1", variant=variant)])[key_of(path, variant)]


@pytest.mark.parametrize(
    ("path", "folder", "file", "class_name"),
    [
        ("torch.nn.modules.linear.Linear", "torch", "nn_linear", "TorchLinear"),
        ("torch.nn.Linear", "torch", "nn_linear", "TorchLinear"),
        (
            "transformers.models.llama.modeling_llama.LlamaAttention",
            "transformers",
            "models_llama_modeling_llama_llama_attention",
            "TransformersLlamaAttention",
        ),
        ("MLP", "generic", "mlp", "GenericMLP"),
        ("my_pkg.net.Net", "my_pkg", "net_net", "MyPkgNet"),
        ("registry.Net", "registry_", "net", "RegistryNet"),
        ("pkg.f.<locals>.Net", "pkg", "f_locals_net", "PkgNet"),
    ],
)
def test_a_class_has_its_file_and_name(path: str, folder: str, file: str, class_name: str) -> None:
    assert place(path) == Place(folder=folder, file=file, class_name=class_name)


def test_a_variant_has_a_file_of_its_own() -> None:
    assert place("pkg.Net", "no cache") == Place(folder="pkg", file="net_no_cache", class_name="PkgNetNoCache")


def test_a_file_is_imported_under_a_short_name() -> None:
    assert place("transformers.models.llama.modeling_llama.LlamaMLP").imported_as == "_transformers_llama_mlp"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("LlamaRMSNorm", "llama_rms_norm"), ("Conv2d", "conv2d"), ("MLP", "mlp"), ("BatchNorm2d", "batch_norm2d")],
)
def test_class_names_become_file_names(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_names_that_would_be_imported_alike_are_told_apart() -> None:
    places = places_of([entry("pkg.aB", "1"), entry("pkg.a_B", "1"), entry("pkg.AB", "1")])

    assert len({one.imported_as for one in places.values()}) == 3


@given(st.lists(st.text(alphabet="aAbB._- 1é", min_size=1, max_size=8), unique=True, max_size=8))
def test_no_two_entries_share_a_file_or_a_class(paths: list[str]) -> None:
    places = places_of([entry(path, "1") for path in paths])
    files = [(one.folder.lower(), one.file.lower()) for one in places.values()]

    assert len(places) == len(paths)
    assert len(set(files)) == len({one.imported_as for one in places.values()}) == len(paths)
    for one in places.values():
        assert all(name.isidentifier() and not keyword.iskeyword(name) for name in (one.folder, one.file))
        assert one.class_name.isidentifier()
        assert one.imported_as.startswith("_")
