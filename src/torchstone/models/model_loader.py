"""Classes with load_model() and load_inputs(), as tt-forge-models has them, and the variants they offer."""

from enum import Enum
from typing import Any

from torchstone.errors import ModelError
from torchstone.models.user_code import UserCode

_NO_VARIANT = object()


def is_model_loader(value: object) -> bool:
    """Whether a value is a class that offers both load_model and load_inputs."""
    return isinstance(value, type) and all(
        callable(getattr(value, name, None)) for name in ("load_model", "load_inputs")
    )


def make_loader(code: UserCode, loader_class: type[Any], variant: str | None) -> Any:
    """An instance for a variant given by its enum name or value, or for the loader's default variant."""
    name = code.target.name or loader_class.__name__
    if variant is None:
        return code.call(loader_class, name=name)
    chosen = _find_variant(code, loader_class, variant)
    return code.call(loader_class, chosen, name=f"{name}[{variant}]")


def _find_variant(code: UserCode, loader_class: type[Any], asked: str) -> object:
    known = _known_variants(code, loader_class)
    if not known:
        return asked  # the loader does not say what it knows: let it decide
    found = next((variant for variant in known if asked in _names_of(variant)), _NO_VARIANT)
    if found is _NO_VARIANT:
        offered = ", ".join(sorted(_names_of(variant)[0] for variant in known))
        msg = f"{loader_class.__name__} in {code.target.module} has no variant {asked!r}; it offers {offered}"
        raise ModelError(msg)
    return found


def _known_variants(code: UserCode, loader_class: type[Any]) -> list[object]:
    query = getattr(loader_class, "query_available_variants", None)
    if callable(query):
        return list(code.call(query, name=f"{loader_class.__name__}.query_available_variants") or ())
    return list(getattr(loader_class, "_VARIANTS", None) or ())


def _names_of(variant: object) -> tuple[str, ...]:
    """The names a user may write for a variant, the shown one first."""
    if isinstance(variant, Enum):
        return (str(variant.value), variant.name, str(variant))
    return (str(variant),)
