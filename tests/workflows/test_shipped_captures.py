"""Captures that come with torchstone, against captures that are made here."""

import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from torchstone.cost import price
from torchstone.formula.derive.sampling_plans import parameters_of
from torchstone.models.inputs import InputOptions
from torchstone.models.zoo.catalogue import entries
from torchstone.record.codec import encode
from torchstone.record.trace import Trace
from torchstone.workflows import shipped_captures
from torchstone.workflows.capture_cache import CaptureKey
from torchstone.workflows.model_source import ModelRequest, load_trace
from torchstone.workflows.shipped_captures import DEFAULT_WAY, FOLDER, path_of, shipped_capture, sizes_of


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(tmp_path / "cache"))


SHIPPED = [entry for entry in entries() if path_of(entry).is_file()]


def asked(model: str, options: InputOptions | None = None, **how: object) -> Trace | None:
    return shipped_capture(CaptureKey(model=model, options=options or InputOptions(), how={**DEFAULT_WAY, **how}))


def comparable(trace: Trace) -> bytes:
    provenance = msgspec.structs.replace(trace.provenance, created="", command="")
    return encode(msgspec.structs.replace(trace, provenance=provenance, sources={}, lines=None))


def same(model: str) -> bool:
    shipped = asked(model)
    assert shipped is not None
    return comparable(shipped) == comparable(load_trace(ModelRequest(model=model, cached=False)))


def test_most_models_of_the_zoo_have_one_and_no_file_is_left_over() -> None:
    assert len(SHIPPED) >= 0.9 * len(entries())
    assert {path.name for path in FOLDER.iterdir()} == {path_of(entry).name for entry in SHIPPED}
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8 << 20


@pytest.mark.parametrize("model", ["gpt2", "bert-base-uncased", "meta-llama/Llama-3.1-8B", "openai/whisper-tiny"])
def test_it_is_what_a_capture_made_here_gives(model: str) -> None:
    assert same(model)


def counted(trace: Trace) -> tuple[object, ...]:
    """The capture without the order of its calls: transformers makes the masks of some models in the order of a set."""
    signatures = Counter(repr(call.signature) for call in trace.ops)
    return tuple(module.path for module in trace.modules), signatures, price(trace).totals, trace.notes


@pytest.mark.heavy
def test_all_are_what_captures_made_here_give() -> None:
    for entry in SHIPPED:
        shipped = asked(entry.id)
        assert shipped is not None
        assert counted(shipped) == counted(load_trace(ModelRequest(model=entry.id, cached=False))), entry.id


def test_a_question_at_other_inputs_is_not_answered_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("gpt2") is not None
    assert asked("gpt2", InputOptions(batch_size=2)) is None
    assert asked("gpt2", InputOptions(phase="decode")) is None
    assert asked("gpt2", backward=True) is None
    assert asked("gpt2", mode="cpu") is None
    assert asked("gpt2", logits_to_keep=1) is None
    with monkeypatch.context() as off:
        off.setenv("TORCHSTONE_CACHE", "off")
        assert asked("gpt2") is None
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()  # a folder of the user's own
    assert asked("gpt2") is None


def test_other_versions_of_the_libraries_capture_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(versions: dict[str, str]) -> bool:
        monkeypatch.setattr(shipped_captures, "installed_version", lambda package: versions.get(package, ""))
        return asked("gpt2") is not None

    shipped = asked("gpt2")
    assert shipped is not None
    made_with = {name: one.partition("+")[0] for name, one in shipped.provenance.versions.items()}
    assert has(made_with)
    assert has({})  # without torch there is no other way
    assert not has({**made_with, "torch": "2.99.0"})
    assert not has({**made_with, "transformers": "4.0.0"})
    assert not has({"torch": made_with["torch"]})


def test_a_damaged_one_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = path_of(next(entry for entry in SHIPPED if entry.id.endswith("/gpt2")))
    monkeypatch.setattr(shipped_captures, "FOLDER", tmp_path)
    for content in (whole.read_bytes()[:300], b"", gzip.compress(b"{}"), b"no gzip"):
        (tmp_path / whole.name).write_bytes(content)
        assert asked("gpt2") is None
    (tmp_path / whole.name).write_bytes(whole.read_bytes())
    assert asked("gpt2") is not None


def test_a_question_about_lines_of_code_captures_the_model() -> None:
    assert load_trace(ModelRequest(model="gpt2")).lines is None
    assert load_trace(ModelRequest(model="gpt2", lines=True)).lines is not None


def test_the_sizes_of_configurations_are_those_of_transformers() -> None:
    from torchstone.models.pretrained import find_blueprint

    for entry in SHIPPED:
        assert sizes_of(entry) == parameters_of(find_blueprint(entry.id, InputOptions()).config), entry.id


@pytest.mark.parametrize("command", [("cost",), ("inspect",), ("cost", "--by", "formula")])
def test_the_first_answer_about_a_zoo_model_imports_no_torch(command: tuple[str, ...]) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None; "
        f"from torchstone.cli.main import main; sys.argv = ['torchstone', *{command}, 'gpt2']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "a capture that comes with torchstone (torch " in done.stderr
    assert "GPT2LMHeadModel" in done.stdout
