import subprocess
import sys
import time
from collections import Counter

import pytest

from torchstone.models.inputs import InputOptions
from torchstone.models.load_model import load
from torchstone.models.pretrained import build, find_blueprint
from torchstone.models.zoo.catalogue import Kind, ZooEntry, entries, find_entry, suggest

SMALLEST_ZOO = 45


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_each_entry_builds_with_the_published_number_of_parameters_and_gets_inputs(entry: ZooEntry) -> None:
    model, inputs = load(entry.id)
    built = sum(parameter.numel() for parameter in model.parameters()) + entry.parameters_not_in_module
    assert entry.config["architectures"] == [type(model).__name__]
    assert built == entry.parameters
    assert abs(built - entry.published_parameters) <= entry.published_rounding
    assert entry.note or not entry.parameters_not_in_module
    assert inputs.kwargs
    assert any("omitted" in note for note in inputs.notes) == ("text alone" in entry.note)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("meta-llama/Llama-3.1-405B", 405_853_388_800),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("deepseek-ai/DeepSeek-V3", 671_026_419_200),
        ("google-bert/bert-base-uncased", 109_514_298),
        ("openai-community/gpt2", 124_439_808),
        ("microsoft/resnet-50", 25_557_032),
        ("google/vit-base-patch16-224", 86_567_656),
    ],
)
def test_well_known_counts_stand_exactly(name: str, parameters: int) -> None:
    entry = find_entry(name)
    assert entry is not None
    assert (entry.parameters, entry.published_rounding) == (parameters, 0)


@pytest.mark.parametrize(
    ("name", "total_size"),
    [
        ("Qwen/Qwen2.5-7B", 15_231_233_024),
        ("Qwen/Qwen2.5-14B", 29_540_067_328),
        ("google/gemma-3-27b-pt", 54_864_813_280),
        ("mistralai/Mixtral-8x22B-v0.1", 281_241_268_224),
        ("microsoft/Phi-3-mini-4k-instruct", 7_642_159_104),
        ("meta-llama/Llama-2-7b-hf", 13_476_831_232),
        ("meta-llama/Llama-3.2-3B", 6_425_499_648),
        ("bigscience/bloom", 352_494_542_848),
    ],
)
def test_weights_have_the_bytes_that_published_index_files_state(name: str, total_size: int) -> None:
    """The sources are in benchmarks/data/checkpoints.json; all of these are stored in 16 bits."""
    entry = find_entry(name)
    assert entry is not None
    assert entry.parameters * 2 == total_size


@pytest.mark.parametrize(("name", "effective"), [("google/gemma-3n-E2B", 1.91e9), ("google/gemma-3n-E4B", 3.98e9)])
def test_the_effective_parameters_of_gemma_3n_are_those_beside_its_tables(name: str, effective: float) -> None:
    """1.91 billion are published for E2B: tables of embeddings can stay in slow memory, since few rows are read."""
    entry = find_entry(name)
    assert entry is not None
    model, _ = load(name)
    tables = sum(one.numel() for path, one in model.named_parameters() if "embed_tokens" in path)
    layers = entry.config["num_hidden_layers"]
    assert isinstance(layers, int)
    assert tables == 262_400 * 2_048 + 262_144 * 256 * layers
    assert abs(entry.parameters - tables - effective) < 0.005e9


def test_the_zoo_is_large_and_covers_every_kind() -> None:
    assert len(entries()) >= SMALLEST_ZOO
    assert {entry.kind for entry in entries()} == set(Kind)


def test_no_id_is_given_twice() -> None:
    ids = Counter(name.lower() for entry in entries() for name in (entry.id, *entry.aliases))
    assert [name for name, count in ids.items() if count > 1] == []


def test_the_largest_builds_in_seconds() -> None:
    largest = max(entries(), key=lambda entry: entry.parameters)
    started_s = time.process_time()
    build(find_blueprint(largest.id, InputOptions()), device="meta", seed=0)
    assert time.process_time() - started_s < 60


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("META-LLAMA/llama-2-7b-HF", "meta-llama/Llama-2-7b-hf"),
        ("gpt2", "openai-community/gpt2"),
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B"),
    ],
)
def test_ids_are_found_in_any_case_without_organisation_and_by_alias(name: str, found: str) -> None:
    entry = find_entry(name)
    assert entry is not None
    assert entry.id == found


def test_an_unknown_name_is_not_found_but_near_ones_are_suggested() -> None:
    assert find_entry("meta-llama/Llama-2-8b-hf") is None
    assert "meta-llama/Llama-2-7b-hf" in suggest("meta-llama/Llama-2-8b-hf")
    assert suggest("zzzz-qqqq") == []


def test_listing_the_zoo_imports_neither_torch_nor_transformers() -> None:
    program = (
        "import sys; from torchstone.models.zoo.catalogue import entries; entries();"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
