import pytest

from torchstone.backends.ttnn.verdicts import InfrastructureError, judge_error

REFUSED = """TT_FATAL @ /project/ttnn/cpp/matmul.cpp:79: a_shape[-1] == b_shape[-2]
info:
The width of the first tensor must be equal to the height of the second tensor. Mismatch: width=256 height=128
backtrace:
 --- one
"""
NO_ROOM = """TT_FATAL @ /project/tt_metal/impl/allocator.cpp:1: x
info:
Out of Memory: Not enough space to allocate 33554432 B L1 buffer across 64 banks, where each bank needs to store 524288 B, but bank size is 1393312 B (allocated: 1048576 B, free: 344736 B, largest free block: 344736 B)
backtrace:
"""  # noqa: E501 - as ttnn says it
GROWN = "info:\nStatically allocated circular buffers on core range [0-0] grow to 4824416 B which is beyond max L1 size of 1499136 B\nbacktrace:"  # noqa: E501
CLASH = "info:\nStatically allocated dataflow buffers in program 2 clash with L1 buffers on core range [0-0]. L1 buffer allocated at 128064 and static dataflow buffer region ends at 638304"  # noqa: E501


def test_a_refusal_is_one_line_with_its_place_and_a_cause_without_numbers() -> None:
    found = judge_error(RuntimeError(REFUSED))

    assert found.outcome == "refused"
    assert found.detail.endswith("Mismatch: width=256 height=128")
    assert found.cause.endswith("Mismatch: width=N height=N")
    assert found.place == "ttnn/cpp/matmul.cpp:79"
    assert "backtrace" in found.text


def test_a_check_without_words_says_what_it_requires() -> None:
    assert judge_error(RuntimeError("TT_FATAL @ /project/a.cpp:1: x == 1\nbacktrace:\n")).detail == "requires x == 1"


@pytest.mark.parametrize(
    ("text", "needed"), [(NO_ROOM, 524_288), (GROWN, 4_824_416), (CLASH, 638_304)], ids=["bank", "grown", "clash"]
)
def test_a_lack_of_memory_has_its_numbers(text: str, needed: int) -> None:
    found = judge_error(RuntimeError(text))

    assert found.outcome == "out of memory"
    assert found.memory is not None
    assert (found.memory["buffer"], found.memory["needed_bytes"]) == ("L1", needed)
    assert "L1" in found.cause


@pytest.mark.parametrize("text", ["Failed to generate binaries for add: cannot rename a to b", "trisc0 build failed"])
def test_a_failure_of_the_machinery_is_never_a_refusal(text: str) -> None:
    with pytest.raises(InfrastructureError):
        judge_error(RuntimeError(f"TT_THROW @ /project/x.cpp:1: tt::exception\ninfo:\n{text}\nbacktrace:"))


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module named 'torch'"), AttributeError("x"), TypeError("y")])
def test_an_error_of_the_python_around_a_call_is_no_verdict(error: Exception) -> None:
    assert judge_error(error).outcome == "not run"
    assert judge_error(ValueError("the shard is too wide")).outcome == "refused"


def test_a_signature_that_ttnn_does_not_have_is_no_verdict() -> None:
    text = "ttnn.add(): incompatible function arguments.\n\nCalled with:\n  add(int, int)\n\nAvailable signatures:\n"
    found = judge_error(TypeError(text))

    assert found.outcome == "not run"
    assert found.detail.endswith("add(int, int)")
