"""config_key(): the one definition of "the same configuration"."""

from hashlib import sha256

import msgspec

from torchstone.record.base import Record

KEY_VERSION = 1


def config_key(config: Record) -> str:
    """Name a configuration; equal configurations, and only those, share a name.

    Values were made canonical at capture. The key starts with the version of this rule, so that keys made
    by different rules never meet.
    """
    canonical = msgspec.json.encode({"config": config, "key_version": KEY_VERSION}, order="sorted")
    return f"k{KEY_VERSION}-{sha256(canonical).hexdigest()}"
