import msgspec
import pytest

from tests.report.traces import empty_model, spec, transformer
from torchstone.record.trace import Trace
from torchstone.record.value import Fields, Items, Value
from torchstone.report.reference.memory_needs import cache_needs


def giving(output: Value) -> Trace:
    """A trace whose root gives this."""
    trace = transformer(1)
    calls = trace.module_calls
    signature = msgspec.structs.replace(calls.signatures[calls.signature_of[0]], output=output)
    table = msgspec.structs.replace(
        calls, signatures=(*calls.signatures, signature), signature_of=(len(calls.signatures), *calls.signature_of[1:])
    )
    return msgspec.structs.replace(trace, module_calls=table)


def layer(*shape: int, kind: str = "DynamicLayer") -> Fields:
    return Fields(class_name=f"hf.{kind}", fields=(("keys", spec(*shape)), ("values", spec(*shape))))


def cache(*layers: Fields, name: str = "layers") -> Fields:
    return Fields(class_name="hf.DynamicCache", fields=((name, Items(kind="list", items=layers)),))


def output(past: Value) -> Fields:
    return Fields(class_name="hf.Output", fields=(("logits", spec(1, 16, 1000)), ("past_key_values", past)))


def test_keys_and_values_grow_by_the_token() -> None:
    found = cache_needs(giving(output(cache(layer(2, 4, 16, 8), layer(2, 4, 16, 8)))))

    assert found is not None
    assert (found.tokens, found.elements_per_token, found.fixed_elements) == (16, 2 * 2 * 2 * 4 * 8, 0)


def test_the_keys_of_an_encoder_do_not_grow() -> None:
    past = Fields(
        class_name="hf.EncoderDecoderCache",
        fields=(
            ("self_attention_cache", cache(layer(1, 4, 16, 8))),
            ("cross_attention_cache", cache(layer(1, 4, 99, 8))),
        ),
    )

    found = cache_needs(giving(output(past)))

    assert found is not None
    assert (found.tokens, found.elements_per_token, found.fixed_elements) == (16, 2 * 4 * 8, 2 * 4 * 99 * 8)


def test_a_state_does_not_grow() -> None:
    found = cache_needs(giving(Items(kind="tuple", items=(spec(1),))))
    assert found is None

    state = Fields(class_name="hf.Output", fields=(("cache_params", Items(kind="list", items=(spec(1, 64, 16),))),))
    found = cache_needs(giving(state))
    assert found is not None
    assert (found.elements_per_token, found.fixed_elements) == (0, 64 * 16)


def test_a_layer_with_a_window_grows_until_it_is_full() -> None:
    sliding = Fields(
        class_name="hf.DynamicSlidingWindowLayer",
        fields=(("keys", spec(1, 4, 16, 8)), ("values", spec(1, 4, 16, 8)), ("sliding_window", 64), ("count", spec())),
    )

    found = cache_needs(giving(output(cache(layer(1, 4, 16, 8), sliding, sliding))))

    assert found is not None
    assert (found.windows, found.tensors, found.not_known) == ({64: 2 * 2 * 4 * 8}, 6, 0)
    assert found.elements_at(16) == 3 * 2 * 4 * 16 * 8
    assert found.elements_at(1000) == 2 * 4 * 1000 * 8 + 2 * 2 * 4 * 64 * 8


@pytest.mark.parametrize("kind", ["DynamicSlidingWindowLayer", "StaticLayer"])
def test_a_bounded_layer_that_does_not_tell_its_bound_is_counted_as_not_known(kind: str) -> None:
    found = cache_needs(giving(output(cache(layer(1, 4, 16, 8, kind=kind)))))

    assert found is not None
    assert (found.elements_per_token, found.fixed_elements, found.not_known) == (0, 0, 2)


def test_a_model_that_gives_no_cache_back_has_no_needs() -> None:
    assert cache_needs(transformer(2)) is None
    assert cache_needs(empty_model()) is None
