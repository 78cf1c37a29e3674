from torchstone.backends.protocol import Availability, Unsupported


def test_a_refusal_names_the_ops_it_is_about() -> None:
    refusal = Unsupported("no rule for aten.mm.default", ops=("aten.mm.default",))

    assert str(refusal) == "no rule for aten.mm.default"
    assert refusal.ops == ("aten.mm.default",)


def test_a_usable_backend_needs_nothing() -> None:
    assert Availability(usable=True, version="torch 2.13.0").needs == ""
