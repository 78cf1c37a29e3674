import pytest

from tests.backends.xla_environment import needs_xla, xla_answers
from torchstone.backends.tt import TT


@needs_xla
@pytest.mark.heavy
def test_its_path_runs_on_the_cpu_device() -> None:
    assert xla_answers()["tt"]["passed"]


@needs_xla
@pytest.mark.heavy
def test_all_stages_are_exported_each_under_its_own_name() -> None:
    stages = xla_answers()["tt"]["stages"]

    assert list(stages) == ["shlo_compiler", "shlo_compiler_cleaned", "ttir", "ttnn", "ttnn_runtime"]
    assert all(text == f"// {stage}\n" for stage, text in stages.items())


@needs_xla
@pytest.mark.heavy
def test_the_compiler_gets_its_options_as_text_and_the_export_is_over_afterwards() -> None:
    given = xla_answers()["tt"]["given"]
    plain = {"optimization_level": "1", "enable_trace": "false"}

    assert given[0] == plain
    assert any(options.get("export_model_name") == "torchstone" for options in given)
    assert given[-1] == plain


@needs_xla
@pytest.mark.heavy
def test_compile_only_never_gives_values() -> None:
    assert "compiled only" in xla_answers()["tt"]["compiled_only"]


def test_without_the_plugin_it_says_where_to_look() -> None:
    found = TT().availability()

    assert not found.usable
    assert "torch_plugin_tt" in found.reason
    assert "--python" in found.needs


def test_a_device_is_never_shared_by_a_fork() -> None:
    assert TT.forks is False


def test_the_options_of_its_torch_backend_are_handed_on() -> None:
    assert TT(torch_options={"tt_legacy_compile": True}).torch_compile_options() == {
        "options": {"tt_legacy_compile": True}
    }
    assert TT().torch_compile_options() == {}
