"""A record -> the JSON document that a command prints with --json."""

from collections.abc import Mapping

import msgspec

from torchstone.record.base import Record
from torchstone.record.reference import WRONG, Comparison, TensorVerdict


def json_document(schema: str, *parts: Record | Mapping[str, object]) -> bytes:
    """One document: its schema first, then the fields of each part."""
    fields: dict[str, object] = {"schema": schema}
    for part in parts:
        fields |= msgspec.to_builtins(part)
    return msgspec.json.encode(fields)


def indented(document: bytes) -> bytes:
    """The same document, one value on each line."""
    return msgspec.json.format(document, indent=1)


def comparison_document(found: Comparison) -> bytes:
    """The document of `reference compare` and `verify`: the record, and the keys that other programs rely on.

    `first_wrong` is the path of the module ("" for the model itself); the name of the tensor is `first_wrong_tensor`.
    """
    tensors = [
        {
            "name": one.name,
            "state": state_of(one),
            "noise_multiple": one.noise_multiple,
            "pcc": None if one.errors is None else one.errors.pcc,
            "relative_l2": None if one.errors is None else one.errors.relative_l2,
            "matched_by": one.matched_by,
            "port_name": one.port_name,
            "layout": one.layout,
        }
        for one in found.verdicts
    ]
    fixed = {
        "counts": found.counts,
        "first_wrong": found.first_wrong_module,
        "first_wrong_tensor": found.first_wrong,
        "tensors": tensors,
    }
    return json_document(Comparison.schema.name, found, fixed)


def state_of(verdict: TensorVerdict) -> str:
    """Passed, suspicious, wrong; or why there is no such verdict: not given, not kept."""
    return "wrong" if verdict.status in WRONG else verdict.status.value
