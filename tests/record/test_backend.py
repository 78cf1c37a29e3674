import msgspec

from torchstone.record.task import BackendFacts, BackendListing, Origin


def test_a_listing_says_everything_even_what_is_empty() -> None:
    facts = BackendFacts(name="eager", origin=Origin.BUILT_IN, location="m:C", usable=True)
    document = msgspec.to_builtins(BackendListing(python="python3", python_version="3.11.2", backends=(facts,)))

    assert document["backends"][0]["reason"] == ""
    assert document["backends"][0]["origin"] == "built in"
    assert msgspec.convert(document, BackendListing).backends == (facts,)
