"""Class paths, the keys they have in a database, and the other names they go by."""

import re
from difflib import get_close_matches

_SPECIAL = re.compile(r"-|(?<=_)_|_(?=_)|^_|_$")  # what would make `__` ambiguous
_ESCAPES = {"-": "-d", "_": "-u"}
_VARIANT = re.compile(r"(?P<path>[^\[\]]*)\[(?P<variant>[^\[\]]+)\]")
_TORCH_MODULES = re.compile(r"torch\.nn\.modules\.\w+\.(?P<name>\w+)")


def key_of(module_path: str, variant: str = "") -> str:
    """The key of a class path: `.` becomes `__`; a `_` that would be misread, and `-`, become `-u` and `-d`."""
    parts = (_SPECIAL.sub(lambda found: _ESCAPES[found[0]], part) for part in module_path.split("."))
    return "__".join(parts) + (f"[{variant}]" if variant else "")


def path_of(key: str) -> tuple[str, str]:
    """The class path and variant of a key."""
    escaped, variant = split_variant(key)
    parts = (part.replace("-u", "_").replace("-d", "-") for part in escaped.split("__"))
    return ".".join(parts), variant


def split_variant(name: str) -> tuple[str, str]:
    """A name and the variant in its square brackets: Net[eager] -> Net, eager."""
    found = _VARIANT.fullmatch(name)
    return (found["path"], found["variant"]) if found else (name, "")


def with_variant(name: str, variant: str) -> str:
    """The name that split_variant takes apart."""
    return f"{name}[{variant}]" if variant else name


def short_name(path: str) -> str:
    """The class name alone."""
    return path.rpartition(".")[2]


def public_alias(module_path: str) -> str | None:
    """The path that users write for a class of torch.nn: torch.nn.modules.linear.Linear -> torch.nn.Linear."""
    found = _TORCH_MODULES.fullmatch(module_path)
    return f"torch.nn.{found['name']}" if found else None


def nearest(name: str, known: list[str]) -> list[str]:
    """Known names that look like this one, by their class names first."""
    by_short = {short_name(one): one for one in known}
    short = get_close_matches(short_name(name), by_short, n=3, cutoff=0.7)
    return [by_short[one] for one in short] or get_close_matches(name, known, n=3)
