import msgspec

from torchstone.record.reference import FunctionUse


def test_a_use_comes_back_as_it_was() -> None:
    use = FunctionUse(function="torch.relu", arguments="float32[2]", output="float32[2]", calls=2, modules=("", "a"))

    assert msgspec.json.decode(msgspec.json.encode(use), type=FunctionUse) == use
