"""config_key(): the one definition of "the same configuration"."""

import json
import re
from hashlib import sha256

import msgspec

from torchstone.record.base import Record

KEY_VERSION = 1
_sorted = msgspec.json.Encoder(order="sorted")
_FLOAT = re.compile(rb"[:\[,]-?[0-9]+[.eE]")


def config_key(config: Record) -> str:
    """Name a configuration; equal configurations, and only those, share a name.

    Values were made canonical at capture: 1, 1.0 and True are three values, and an infinite float that slipped through
    raises ValueError. The key starts with the version of this rule, so that keys made by different rules never meet.
    """
    return f"k{KEY_VERSION}-{sha256(_canonical(config)).hexdigest()}"


def _canonical(config: Record) -> bytes:
    """The JSON that the rule is about; from the fast encoder where both encoders write the same."""
    fast = _sorted.encode({"config": config, "key_version": KEY_VERSION})
    if _is_spelled_alike(fast):
        return fast
    parts = {"config": msgspec.to_builtins(config, str_keys=True), "key_version": KEY_VERSION}
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _is_spelled_alike(text: bytes) -> bool:
    """Whether the two encoders write this the same: they differ on letters beyond ASCII, on floats and on NaN."""
    plain = text.isascii() and b"\\" not in text and b"\x7f" not in text and b"null" not in text
    return plain and _FLOAT.search(text) is None
