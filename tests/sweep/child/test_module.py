from pathlib import Path
from typing import Any

import pytest

from torchstone.sweep.child import module as child_module
from torchstone.sweep.child.module import describe, identity_of, permutations, readable_value, run_vector, set_up

MODULE = """
import torch

TIMEOUT = 7
parameters = {
    "good": {"shape": [(2, 3), (4, 5)], "a,b": [(1, 2), (3, 4)]},
    "xfail_bad": {"shape": [(0,)], "a,b": [(1, 1)]},
}
opened = []

def mesh_device_fixture():
    opened.append(1)
    yield "a device", "label"

def invalidate_vector(vector):
    return vector["a"] == 3 and vector["shape"] == (4, 5), "too much"

def run(shape, a, b, *, device):
    assert device == "a device"
    if shape == (2, 3) and a == 1:
        return True, "0.999"
    if shape == (2, 3):
        return [(True, "fine"), 2_000_000]
    if shape == (4, 5):
        return False, "PCC is 0.5"
    raise NotImplementedError("no empty tensors")
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_loaded", child_module._Loaded())


def loaded(tmp_path: Path, text: str = MODULE) -> list[dict[str, Any]]:
    (tmp_path / "my_sweep.py").write_text(text, encoding="utf-8")
    set_up({"path": str(tmp_path / "my_sweep.py")})
    vectors: list[dict[str, Any]] = describe({})["vectors"]
    return vectors


def test_the_right_most_name_varies_fastest_and_joined_names_vary_together() -> None:
    found = list(permutations({"x": [1, 2], "a,b": [(3, 4), (5, 6)]}))

    assert found == [
        {"x": 1, "a": 3, "b": 4},
        {"x": 1, "a": 5, "b": 6},
        {"x": 2, "a": 3, "b": 4},
        {"x": 2, "a": 5, "b": 6},
    ]


def test_a_module_tells_its_vectors_suites_and_which_are_not_valid(tmp_path: Path) -> None:
    vectors = loaded(tmp_path)

    assert [(one["suite"], one["reason"]) for one in vectors] == [
        ("good", ""),
        ("good", ""),
        ("good", ""),
        ("good", "too much"),
        ("xfail_bad", ""),
    ]
    assert vectors[0]["parameters"] == {"shape": [2, 3], "a": 1, "b": 2}
    assert describe({})["timeout_s"] == 7.0


def test_each_way_to_return_is_read(tmp_path: Path) -> None:
    answers = [run_vector({"vector": one["id"]}) for one in loaded(tmp_path)]

    assert [one["outcome"] for one in answers] == ["passed", "passed", "wrong", "wrong", "unsupported"]
    assert answers[1]["timing"]["median_s"] == 0.002
    assert answers[2]["detail"] == "PCC is 0.5"
    assert child_module._loaded.module.opened == [1]  # one device for all of them


def test_the_name_of_a_vector_does_not_change_with_what_it_was_seen_in() -> None:
    vector = {"shape": (1, 2), "dtype": "x", "traced_source": "a.py"}

    assert identity_of(vector) == identity_of({**vector, "traced_source": "b.py"})
    assert identity_of(vector) != identity_of({**vector, "shape": (1, 3)})
    assert identity_of({**vector, "config_hash": "0943"}) == "0943"


def test_an_object_is_told_without_its_address() -> None:
    assert readable_value(object()) == "<object object>"
    assert readable_value({"a": (1, float("inf"))}) == {"a": [1, "inf"]}


def test_absent_parameters_become_none_and_are_named(tmp_path: Path) -> None:
    text = (
        "parameters = {'s': {'a': ['__ABSENT__'], 'b': [None]}}\n"
        "def run(a, b, *, device, **kwargs):\n"
        "    return (a is None and kwargs['__absent_keys__'] == ['a']), 'no'\n"
    )
    (one,) = loaded(tmp_path, text)

    assert run_vector({"vector": one["id"]})["outcome"] == "passed"


def test_a_parameter_that_the_trace_could_not_tell_makes_the_vector_invalid(tmp_path: Path) -> None:
    text = "parameters = {'s': {'a': [{'__UNREADABLE__': '{...}'}]}}\ndef run(a, *, device): ...\n"
    (one,) = loaded(tmp_path, text)

    assert one["reason"] == "a could not be read from the trace"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("assert False, 'PCC'", "wrong"),
        ("raise ValueError('x')", "raised"),
        ("raise RuntimeError('Out of Memory: Not enough space')", "out of memory"),
        ("return None", "raised"),
        ("return 5", "raised"),
    ],
)
def test_what_a_module_raises_is_told_apart(tmp_path: Path, body: str, outcome: str) -> None:
    (one,) = loaded(tmp_path, f"parameters = {{'s': {{'a': [1]}}}}\ndef run(a):\n    {body}\n")

    assert run_vector({"vector": one["id"]})["outcome"] == outcome


def test_a_vector_that_the_module_no_longer_has_is_not_run(tmp_path: Path) -> None:
    loaded(tmp_path)

    assert "generate" in run_vector({"vector": "gone"})["detail"]


@pytest.mark.parametrize("text", ["parameters = {}\n", "def run(): ...\n"])
def test_a_file_that_is_no_sweep_module_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(AttributeError, match="not a sweep module"):
        loaded(tmp_path, text)


def test_a_suite_with_too_many_combinations_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "many.py"
    suites = '{"all": {"a": list(range(1000)), "b": list(range(1000))}, "few": {"a": [1], "b": [2]}}'
    path.write_text(f"parameters = {suites}\ndef run(a, b, *, device):\n    return True, ''\n", encoding="utf-8")

    set_up({"path": str(path)})
    found = describe({})

    assert [one["suite"] for one in found["vectors"]] == ["few"]
    assert "suite all has 1,000,000 combinations" in found["notes"][0]
