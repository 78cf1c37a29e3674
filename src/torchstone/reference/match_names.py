"""Which tensor of a port is which golden tensor: by name, by the user's map, by order, shape and value."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from torch import Tensor

from torchstone.errors import InputError, UnreadableFileError
from torchstone.record.files import parse_json, parse_toml, read_text, shortened
from torchstone.record.reference import GoldenTensor, MatchedBy, Role
from torchstone.reference.fused import merge_to, same_projection, split_to, whole_parts
from torchstone.reference.golden_files import INPUTS, MODULES, OUTPUTS, Golden
from torchstone.reference.match_values import FITS, Matching, match_unnamed


def match_names(golden: Golden, port: Mapping[str, Tensor], names: "NameMap | None" = None) -> Matching:
    """Match the tensors of a port: by the map where it has an entry, by name, by value, by order."""
    matching = Matching(golden, port)
    known = {one.name: one for one in golden.data.tensors}
    if names is not None:
        _by_map(matching, names, known)
    for name in matching.left():
        if name in known and name not in matching.found:
            matching.add(name, name, MatchedBy.NAME)
    _by_short_name(matching, known)
    _by_similar_name(matching)
    _fused_by_name(matching)
    _fused_by_value(matching)  # first: without its other parts, a fused tensor would be the first part with padding
    match_unnamed(matching)
    return matching


# --- Names ---


def _by_short_name(matching: Matching, known: Mapping[str, GoldenTensor]) -> None:
    outputs = [one.name for one in known.values() if one.role is Role.OUTPUT]
    for name in matching.left():
        full = full_name(name, known)
        if full is None and len(matching.port) == 1 and len(outputs) == 1:
            full = outputs[0]
        if full is not None and full not in matching.found:
            matching.add(full, name, MatchedBy.NAME)


def full_name(name: str, known: Mapping[str, GoldenTensor]) -> str | None:
    """The golden name that a name stands for; None when it is unknown or ambiguous."""
    if name in known:
        return name
    for full in (f"{OUTPUTS}/{name}", f"{MODULES}/{name}/{OUTPUTS}", f"{MODULES}/{name}", f"{INPUTS}/{name}"):
        if full in known:
            return full
    given_by_module = [full for full in known if full.startswith(f"{MODULES}/{name}/{OUTPUTS}/")]
    return given_by_module[0] if len(given_by_module) == 1 else None


def _by_similar_name(matching: Matching) -> None:
    """Names that differ in separators and case alone: `encoder_layer_0` for modules/encoder.layer.0/outputs."""
    golden: dict[str, list[str]] = {}
    for one in matching.wanted(Role):
        for key in _plain_names(one):
            golden.setdefault(key, []).append(one.name)
    claims: dict[str, list[str]] = {}
    for name in matching.left():
        meant = golden.get(_plain(name), [])
        if len(meant) == 1:
            claims.setdefault(meant[0], []).append(name)
    for full, names in claims.items():
        if len(names) == 1:
            matching.add(full, names[0], MatchedBy.NAME)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _plain_names(one: GoldenTensor) -> set[str]:
    """What a port may call a golden tensor, separators aside."""
    names = {one.name}
    if one.role is Role.MODULE_OUTPUT:
        inner = one.name.removeprefix(f"{MODULES}/").removesuffix(f"/{OUTPUTS}")
        names |= {inner, f"{inner}/output", f"{inner}/out"}
    elif one.role is Role.OUTPUT:
        names |= {one.name.removeprefix(f"{OUTPUTS}/"), one.name.replace(OUTPUTS, "output", 1)}
    elif one.role is Role.INPUT:
        names.add(one.name.replace(INPUTS, "input", 1))
    return {_plain(name) for name in names}


# --- The map of the user: port name -> golden name, or a list of them ---


class NameMap(dict[str, tuple[str, ...]]):
    """Port names or patterns, and the golden names that they stand for."""


def read_map(path: Path) -> NameMap:
    """A TOML or JSON file: port name = golden name, or a list of them for a fused tensor; `*` is any part of a name."""
    try:
        text = read_text(path)
        found = (parse_json if path.suffix == ".json" else parse_toml)(text, origin=str(path))
    except UnreadableFileError as error:
        msg = f"--map {path} cannot be read ({shortened(error)}); write lines such as 'port.name' = 'logits'"
        raise UnreadableFileError(msg) from error
    if not isinstance(found, dict):
        msg = f"--map {path} is not a table of names; write lines such as 'port.name' = 'logits'"
        raise InputError(msg)
    return as_name_map(_flat(found), origin=f"--map {path}")


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """TOML reads a.b = "c" as a table in a table."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def as_name_map(table: Mapping[str, object], *, origin: str = "the map") -> NameMap:
    """A map from a mapping of names to a name or a list of names."""
    names = NameMap()
    for port, golden in table.items():
        meant = (golden,) if isinstance(golden, str) else golden
        if not isinstance(meant, list | tuple) or not meant or not all(isinstance(one, str) for one in meant):
            msg = f"{origin}: {port!r} is mapped to {golden!r}, not to a name; write a golden name or a list of them"
            raise InputError(msg)
        names[port] = tuple(meant)
    return names


def _by_map(matching: Matching, names: NameMap, known: Mapping[str, GoldenTensor]) -> None:
    meant: dict[tuple[str, ...], list[str]] = {}
    for port in matching.left():
        golden = _mapped(port, names)
        if golden is not None:
            full = tuple(_known_name(one, port, known) for one in golden)
            meant.setdefault(full, []).append(port)
    taken: dict[str, str] = {}
    for full, ports in meant.items():
        for one in full:
            if one in taken:
                msg = f"the map gives {one} to {taken[one]} and to {ports[0]}; map each golden tensor once"
                raise InputError(msg)
            taken[one] = ports[0]
        _add_mapped(matching, full, ports)


def _mapped(port: str, names: NameMap) -> tuple[str, ...] | None:
    """The golden names of a port's name: a literal entry wins, then the first pattern, its `*` filled in."""
    if port in names:
        return names[port]
    for pattern, golden in names.items():
        found = re.fullmatch("(.*?)".join(map(re.escape, pattern.split("*"))), port) if "*" in pattern else None
        if found is not None:
            return tuple(_filled(one, found.groups()) for one in golden)
    return None


def _filled(golden: str, parts: Sequence[str]) -> str:
    following = iter(parts)
    return re.sub(r"\*", lambda _: next(following, "*"), golden)


def _known_name(golden: str, port: str, known: Mapping[str, GoldenTensor]) -> str:
    full = full_name(golden, known)
    if full is None:
        near = get_close_matches(golden, known, n=1, cutoff=0.3)
        meant = f"; did you mean {near[0]}?" if near else "; use a name of golden_data.json"
        msg = f"the map gives {port} the name {golden!r}, which the golden data does not have{meant}"
        raise InputError(msg)
    return full


def _add_mapped(matching: Matching, full: tuple[str, ...], ports: list[str]) -> None:
    if len(full) == len(ports) == 1:
        matching.add(full[0], ports[0], MatchedBy.MAP)
        return
    golden = {name: matching.golden.tensors[name] for name in full if name in matching.golden.tensors}
    if len(golden) < len(full):
        msg = f"the map names {full[0]}, whose values are not in the golden data; drop the entry"
        raise InputError(msg)
    refit = None
    if len(ports) == 1:
        refit = split_to(golden, matching.port[ports[0]])
    elif len(full) == 1:
        refit = merge_to(full[0], golden[full[0]], [matching.port[port] for port in ports])
    if refit is None:
        shapes = ", ".join(f"{port} {list(matching.port[port].shape)}" for port in ports)
        msg = f"the map makes {', '.join(full)} of {shapes}, which no layout gives; check the names and their order"
        raise InputError(msg)
    matching.add_refit(ports, refit, MatchedBy.MAP)


# --- Fused projections ---


def _fused_by_name(matching: Matching) -> None:
    wanted = [one.name for one in matching.wanted()]
    for key, parts in whole_parts(wanted).items():
        for name in matching.left():
            if same_projection(name, key):
                _split(matching, parts, name, MatchedBy.NAME)
                break
    for key, ports in whole_parts(matching.left()).items():
        for one in matching.wanted():
            if same_projection(one.name, key):
                given = [matching.port[port] for port in ports]
                refit = merge_to(one.name, matching.golden.tensors[one.name], given)
                if refit is not None:
                    matching.add_refit(ports, refit, MatchedBy.NAME)
                break


def _split(matching: Matching, parts: Sequence[str], port: str, by: MatchedBy, *, below: float | None = None) -> bool:
    refit = split_to({name: matching.golden.tensors[name] for name in parts}, matching.port[port])
    if refit is None or (below is not None and refit.score > below):
        return False
    matching.add_refit([port], refit, by)
    return True


def _fused_by_value(matching: Matching) -> None:
    """A tensor under any name that has all parts of one golden projection in it."""
    for parts in whole_parts([one.name for one in matching.wanted()]).values():
        for name in matching.left():
            if _split(matching, parts, name, MatchedBy.VALUE, below=FITS / 3):
                break
