"""The names of `import torchstone as ts`: documented by examples that run. test_stable_interface.py pins them."""

import subprocess
import sys
from doctest import ELLIPSIS, DocTestFinder, DocTestRunner

import pytest

import torchstone as ts
from torchstone.check.settings import Settings
from torchstone.errors import InputError
from torchstone.record.codec import decode, encode
from torchstone.record.trace import Trace


def test_only_the_public_names_are_listed() -> None:
    assert sorted(ts.__all__) == sorted(name for name in dir(ts) if not name.startswith("_"))


@pytest.mark.parametrize("name", sorted(ts.__all__))
def test_the_example_of_a_public_function_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    function: object = getattr(ts, name)
    (found,) = DocTestFinder(recurse=False).find(function, name, globs={})

    assert found.examples, f"{name} has no example"
    assert DocTestRunner(optionflags=ELLIPSIS).run(found).failed == 0, capsys.readouterr().out


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, torchstone; sys.exit('torch' in sys.modules or 'msgspec' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(ts, "nothing")  # noqa: B009 - mypy knows that there is no such name


def test_a_trace_read_from_a_file_cannot_be_checked_alone() -> None:
    import torch

    saved = decode(encode(ts.trace(torch.nn.Linear(2, 2), torch.ones(1, 2))), Trace, origin="trace.json")

    with pytest.raises(InputError, match="give check_model the module or model name"):
        ts.check_model(saved, backend="eager")


@pytest.mark.heavy
def test_a_trace_of_this_process_is_checked_with_its_own_weights() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    found = ts.trace(model, torch.randn(2, 4))

    assert ts.check_model(found, backend="eager").passed
    faulty = Settings(backend="faulty", options={"faults": [{"fault": "wrong", "op": "aten.relu.default"}]})
    assert not ts.check_model(found, settings=faulty).passed
