"""One ATen op configuration -> its rule, called on the device: accepted, refused, out of memory; and a way around."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchstone.backends.ttnn.device import open_device
from torchstone.backends.ttnn.verdicts import ACCEPTED, judge_error
from torchstone.foreign import foreign_code
from torchstone.mapping.child.facade import COMPLEX, Facade, Handle, Variant
from torchstone.mapping.child.footprint import Probe
from torchstone.mapping.load import load_rules
from torchstone.mapping.table import Kind, NotMappedError, find_mapping

UNMAPPED, WRONG_SHAPE = "unmapped", "wrong shape"
_TILE = 32
USUAL = Variant()
OTHERS = (
    Variant("sizes padded to whole tiles", pad=True),
    Variant("inputs in float32", float_dtype="float32"),
    Variant("inputs in row-major layout", rows=True),
    Variant("inputs in bfloat8_b", float_dtype="bfloat8_b"),
    *(Variant(f"the first dimension in {parts} parts", parts=parts) for parts in (2, 4, 8)),
    *(
        Variant(f"inputs in bfloat8_b, the first dimension in {parts} parts", float_dtype="bfloat8_b", parts=parts)
        for parts in (2, 4)
    ),
    Variant("inputs in L1", l1=True),
    *(Variant(f"inputs in L1, {one.lower()} sharded", l1=True, shards=one) for one in ("HEIGHT", "WIDTH", "BLOCK")),
)


def set_up(payload: Mapping[str, Any]) -> None:
    """Import ttnn and the rules, once; every process opens its own device."""
    from torchstone.backends.ttnn import device

    device.set_up(payload)
    load_rules(list(payload.get("rules") or ()))


def judge_op(payload: Mapping[str, Any]) -> dict[str, object]:
    """Judge one configuration in the usual layout, and search for another one where that is not accepted."""
    mapping = find_mapping(payload["op"])
    if mapping is None or mapping.rule is None:
        return {"outcome": UNMAPPED, "kind": Kind.NONE.value, "detail": "" if mapping is None else mapping.note}
    found = _attempt(mapping.rule, payload, USUAL)
    made = len(found.get("calls", ()))
    kind = mapping.kind or (Kind.DIRECT if made == 1 else Kind.COMPOSED)
    found["kind"] = kind.value
    if found["outcome"] not in (ACCEPTED, UNMAPPED) and payload.get("search", True):
        found["variant"], found["variant_l1_bytes"] = _other_way(mapping.rule, payload)
    return found


def _other_way(rule: object, payload: Mapping[str, object]) -> tuple[str, int | None]:
    """The accepted layout that needs least L1, and the highest bytes of one core there; "" where none is accepted."""
    accepted = []
    for number, variant in enumerate(OTHERS):
        probe = Probe()
        if _attempt(rule, payload, variant, probe)["outcome"] == ACCEPTED:
            l1 = probe.take().l1
            accepted.append((l1 is None, l1 or 0, number, variant.title, l1))
    return min(accepted)[3:] if accepted else ("", None)


def _attempt(rule: Any, payload: Mapping[str, Any], variant: Variant, probe: Probe | None = None) -> dict[str, Any]:
    device = open_device()
    facade = Facade(device, variant, probe)
    with foreign_code() as ran:  # ttnn raises anything, and that is the result
        arguments = {name: _built(facade, node, variant) for name, node in payload["arguments"].items()}
        inside = len(facade.calls)
        device.clear_program_cache()  # a program of an earlier configuration would hide that this one needs it
        result = rule(facade, **arguments)
    if isinstance(ran.error, NotMappedError):
        return {"outcome": UNMAPPED, "detail": str(ran.error), "calls": []}
    if ran.error is not None:
        judged = judge_error(ran.error)
        about = {"cause": judged.cause, "place": judged.place, "memory": judged.memory, "text": judged.text}
        return {"outcome": judged.outcome, "detail": judged.detail, "calls": facade.calls, **about}
    calls = facade.calls[inside:]
    programs = device.num_program_cache_entries()
    shapes = [list(one.shape) for one in handles_in(result)]
    wanted = payload.get("outputs")
    if variant == USUAL and wanted is not None and shapes[: len(wanted)] != wanted[: len(shapes)]:
        detail = f"the mapping gives {shapes} where the op gives {wanted}"
        return {"outcome": WRONG_SHAPE, "detail": detail, "cause": "wrong shape", "calls": calls}
    return {"outcome": ACCEPTED, "detail": "", "calls": calls, "programs": programs}


def handles_in(result: object) -> list[Handle]:
    """The tensors of a result, in order."""
    if isinstance(result, Handle):
        return [result]
    return [one for part in result for one in handles_in(part)] if isinstance(result, list | tuple) else []


def _built(facade: Facade, node: object, variant: Variant) -> Any:
    if isinstance(node, list):
        return [_built(facade, one, variant) for one in node]
    if not isinstance(node, dict):
        return node
    if "number" in node:
        return float(node["number"])
    about = node["tensor"]
    return make_input(facade, about["shape"], about["dtype"], variant)


def make_input(facade: Facade, shape: Sequence[int], dtype: str, variant: Variant = USUAL, name: str = "x") -> Handle:
    """A tensor without data, laid out as the variant says; one without dimensions has one of size 1."""
    import ttnn

    sizes = list(shape)
    if dtype == COMPLEX:
        parts = make_input(facade, [*shape, 2], "float32", variant, name)
        return facade.as_complex(parts)
    if variant.pad and len(sizes) > 1:
        sizes[-2:] = [-(-size // _TILE) * _TILE for size in sizes[-2:]]
    if variant.parts > 1 and sizes and sizes[0] > 1:
        sizes[0] = -(-sizes[0] // variant.parts)
    kind, _ = facade.device_dtype(dtype)
    rows = variant.rows and variant.float_dtype != "bfloat8_b"
    layout = ttnn.ROW_MAJOR_LAYOUT if rows else ttnn.TILE_LAYOUT
    memory = ttnn.L1_MEMORY_CONFIG if variant.l1 else ttnn.DRAM_MEMORY_CONFIG
    if variant.shards and len(sizes) > 1 and "float" in dtype:
        memory = _sharded(sizes, variant.shards)
    if 0 in sizes:
        return facade.adopt(None, sizes, dtype, name)  # nothing lies on the device
    made = ttnn.allocate_tensor_on_device(ttnn.Shape(sizes or [1]), kind, layout, open_device(), memory)
    return facade.adopt(made, sizes if variant != USUAL else shape, dtype, name)


def _sharded(sizes: Sequence[int], kind: str) -> Any:
    """L1 over as many cores as divide the rows or columns of tiles; ttnn refuses what has no whole tiles."""
    import ttnn

    grid = open_device().compute_with_storage_grid_size()
    rows, columns = -(-math.prod(sizes[:-1]) // _TILE), -(-sizes[-1] // _TILE)
    most = grid.x * grid.y
    if kind == "BLOCK":
        down, across = _largest_divisor(rows, grid.y), _largest_divisor(columns, grid.x)
        last = ttnn.CoreCoord(across - 1, down - 1)
        cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), last)])
    else:
        down, across = (_largest_divisor(rows, most), 1) if kind == "HEIGHT" else (1, _largest_divisor(columns, most))
        cores = ttnn.num_cores_to_corerangeset(down * across, grid, row_wise=True)
    shard = [rows // down * _TILE, columns // across * _TILE]
    spec = ttnn.ShardSpec(cores, shard, ttnn.ShardOrientation.ROW_MAJOR)
    return ttnn.MemoryConfig(getattr(ttnn.TensorMemoryLayout, f"{kind}_SHARDED"), ttnn.BufferType.L1, spec)


def _largest_divisor(number: int, most: int) -> int:
    return next(one for one in range(min(number, most), 0, -1) if number % one == 0)
