"""A whole model's call -> the lengths of the sequences it was given, and of the cache it goes on from."""

from collections.abc import Iterator

from torchstone.formula.derive.reading import CACHE_LENGTH, DECODER_LENGTH, ENCODER_LENGTH
from torchstone.record.module import ModuleCall
from torchstone.record.value import Entries, Fields, Items, Value, tensors_in

_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache_params")
_ENCODED = ("input_ids", "encoder_outputs")
_DECODED = "decoder_input_ids"
_COUNTED = "cumulative_length"  # of a cache that forgets: its tensors are shorter
_KEYS = "keys"
_LENGTH_AXIS = -2


def lengths_of(call: ModuleCall) -> dict[str, int]:
    """By parameter: the encoder's and the decoder's sequence where there are two, and the tokens in a filled cache."""
    given = {argument.name: argument.value for argument in call.signature.arguments}
    lengths: dict[str, int] = {}
    if _DECODED in given:
        encoded = next((given[name] for name in _ENCODED if given.get(name) is not None), None)
        for name, value in ((ENCODER_LENGTH, encoded), (DECODER_LENGTH, given[_DECODED])):
            shapes = [spec.shape for spec in tensors_in(value)]
            if shapes:
                lengths[name] = shapes[0][1]
    cached = next((given[name] for name in _CACHES if given.get(name) is not None), None)
    tokens = next(_tokens_in(cached), None)
    return lengths if tokens is None else {**lengths, CACHE_LENGTH: tokens}


def _tokens_in(value: Value) -> Iterator[int]:
    """The tokens in each layer of a cache, the first layer first."""
    match value:
        case Fields(fields=fields):
            parts = dict(fields)
            counted, keys = parts.get(_COUNTED), list(tensors_in(parts.get(_KEYS)))
            if isinstance(counted, int):
                yield counted
            elif keys:
                yield keys[0].shape[_LENGTH_AXIS]
            else:
                for part in parts.values():
                    yield from _tokens_in(part)
        case Items(items=items):
            for item in items:
                yield from _tokens_in(item)
        case Entries(entries=entries):
            for _, item in entries:
                yield from _tokens_in(item)
        case _:
            return
