"""config_key(): the one definition of "the same configuration"."""

import json
from hashlib import sha256

import msgspec

from torchstone.record.base import Record

KEY_VERSION = 1


def config_key(config: Record) -> str:
    """Name a configuration; equal configurations, and only those, share a name.

    Values were made canonical at capture: 1, 1.0 and True are three values, and an infinite float that slipped through
    raises ValueError. The key starts with the version of this rule, so that keys made by different rules never meet.
    """
    parts = {"config": msgspec.to_builtins(config, str_keys=True), "key_version": KEY_VERSION}
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"k{KEY_VERSION}-{sha256(canonical.encode()).hexdigest()}"
