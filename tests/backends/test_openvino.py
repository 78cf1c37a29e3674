import pytest

from tests.backends.conformance import HeavyBackend
from torchstone.backends.openvino import OpenVino, telling_line

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")


class TestOpenVino(HeavyBackend):
    backend_class = OpenVino
    extra = "openvino"
    stage = "xml"
    word = "MatMul"


def test_its_messages_are_told_without_the_places_in_its_sources() -> None:
    error = RuntimeError("Exception from src/core/x.cpp:134:\nCheck 'a' failed at src/y.cpp:9:\nshapes do not fit\n")

    assert telling_line(error) == "shapes do not fit"
    assert telling_line(RuntimeError("")) == "RuntimeError"
