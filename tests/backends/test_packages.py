from importlib.metadata import version

from torchstone.backends.protocol import availability_of, installed


def test_what_is_installed_is_usable_and_named_with_its_version() -> None:
    found = availability_of(["torch", "numpy"], needs="torch")

    assert found.usable
    assert found.version == f"torch {version('torch')}, numpy {version('numpy')}"
    assert (found.reason, found.needs) == ("", "")


def test_what_is_missing_is_named_with_the_way_out() -> None:
    found = availability_of(["torch", "no-such-package"], needs="pip install 'torchstone[nothing]'")

    assert not found.usable
    assert found.reason == "no-such-package not installed"
    assert found.needs == "pip install 'torchstone[nothing]'"
    assert found.version.startswith("torch ")  # what is there is still told


def test_a_missing_module_of_a_package_is_found_out_without_importing_it() -> None:
    found = availability_of(["torch"], needs="x", modules=["torch.no_such_part", "no_such_package.part", "third"])

    assert found.reason == "torch.no_such_part, no_such_package.part and third not installed"


def test_a_package_that_is_not_there_has_no_version() -> None:
    assert installed("no-such-package") is None
