"""Hashes that other tools gave -> whether a rule that we know still makes them from what the database holds."""

from collections.abc import Iterable, Iterator

from torchstone.configs.ttnn_hash import RULES, verified_rule
from torchstone.configs.ttnn_write import arguments_json, machine_json
from torchstone.record.base import Record
from torchstone.record.config import SeenConfiguration


class HashCheck(Record, frozen=True, kw_only=True):
    """One foreign hash."""

    key: str
    op: str
    hash: str
    rule: str  # the rule that makes it; "": none does


def check_hashes(seen: Iterable[SeenConfiguration]) -> Iterator[HashCheck]:
    """Make every foreign hash again."""
    for one in seen:
        for name in one.foreign:
            if name.hash:
                op = name.op or one.configuration.op
                rule = verified_rule(name.hash, op, arguments_json(one.configuration), machine_json(one), RULES)
                yield HashCheck(key=one.key, op=op, hash=name.hash, rule=rule.name if rule else "")
