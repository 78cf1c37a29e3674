import msgspec
import pytest

from torchstone.record.task import (
    BackendFacts,
    BackendListing,
    Ending,
    Environment,
    Evidence,
    Limits,
    Origin,
    Task,
    TaskResult,
)


@pytest.mark.parametrize(
    "record",
    [
        Task(id="a", entry="module:function", payload={"x": [1, None]}, limits=Limits(deadline_s=3, memory_bytes=5)),
        TaskResult(id="a", ending=Ending.ANSWERED, answer={"y": 1}, elapsed_s=0.5),
        TaskResult(id="a", ending=Ending.CRASHED, evidence=Evidence(signal="SIGSEGV", peak_bytes=7, last_output="x")),
        Environment(python="python", preload=("torch",), setup="m:f", setup_payload={"a": 1}, forks=False),
    ],
)
def test_a_record_goes_through_json_unchanged(record: Task | TaskResult | Environment) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


def test_endings_are_the_words_that_people_read() -> None:
    assert [str(ending) for ending in Ending] == [
        "answered", "raised", "crashed", "timed out", "machine too busy", "out of memory", "no answer", "cancelled",
    ]  # fmt: skip


def test_two_tasks_do_not_share_a_payload() -> None:
    one, other = Task(id="1", entry="m:f"), Task(id="2", entry="m:f")
    one.payload["x"] = 1

    assert other.payload == {}


def test_a_listing_says_everything_even_what_is_empty() -> None:
    facts = BackendFacts(name="eager", origin=Origin.BUILT_IN, location="m:C", usable=True)
    document = msgspec.to_builtins(BackendListing(python="python3", python_version="3.11.2", backends=(facts,)))

    assert document["backends"][0]["reason"] == ""
    assert document["backends"][0]["origin"] == "built in"
    assert msgspec.convert(document, BackendListing).backends == (facts,)
