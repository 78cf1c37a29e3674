import pytest

from torchstone.cli.check_options import read_size, settings_of, subject_of
from torchstone.cli.model_options import ModelRequest
from torchstone.errors import InputError
from torchstone.models.inputs import InputOptions

GIVEN = {
    "backend": "faulty",
    "pairs": ("fault=wrong", "seconds=2"),
    "interpreter": None,
    "deadline_s": 5.0,
    "memory_limit": "2GiB",
    "jobs": 3,
    "pcc": ("0.9",),
    "tolerances": None,
    "granularity": "op",
    "only": "",
    "max_depth": None,
    "root_only": False,
    "no_ir": True,
    "reuse_results": False,
}


def request(**changes: object) -> ModelRequest:
    given = {"model": "tiny:bert", "inputs": None, "options": InputOptions(), "mode": "auto", "reuse": True}
    return ModelRequest(**{**given, "backward": False, **changes})  # type: ignore[arg-type]


def test_options_become_settings() -> None:
    settings = settings_of(GIVEN)

    assert settings.options == {"fault": "wrong", "seconds": 2}
    assert (settings.limits.deadline_s, settings.limits.memory_bytes) == (5.0, 2 << 30)
    assert settings.tolerances.for_names(())["pcc"] == 0.9
    assert not settings.exports_ir
    assert settings.reuse == ""


def test_only_the_root_means_no_ops_and_no_depth() -> None:
    settings = settings_of({**GIVEN, "root_only": True})

    assert (settings.granularity.value, settings.max_depth) == ("module", 0)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("512M", 512 << 20), ("1.5k", 1536), ("100", 100), (None, None)]
)
def test_sizes_are_read(text: str | None, size: int | None) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["much", "-1G", "0", "4XB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        read_size(text)


@pytest.mark.parametrize(
    ("changes", "words"), [({"mode": "meta"}, "really runs the model"), ({"backward": True}, "forward pass only")]
)
def test_what_a_check_has_no_use_for_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        subject_of(request(**changes), "command")


def test_a_request_becomes_a_subject() -> None:
    assert subject_of(request(), "command").model == "tiny:bert"
