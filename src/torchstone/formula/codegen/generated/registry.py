"""The generated classes by name: found in the files of the package, checked for circles, and called."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from .base import GeneratedModule
from .exact import Value


class UnknownModuleError(LookupError):
    """No generated class has this name, or several have it."""


class CircularDependencyError(RuntimeError):
    """Classes whose formulas call each other in a circle."""


class Registry:
    """Generated classes by path, alias and class name."""

    def __init__(self, classes: Iterable[type[GeneratedModule]]) -> None:
        self.classes = {one.name(): one for one in classes}
        self._refuse_circles()

    def find(self, name: str) -> type[GeneratedModule]:
        """The class of a path, an alias or an unambiguous class name, with a variant in [] where there is one."""
        for names_of in (_full_names, _short_names):
            found = [one for one in self.classes.values() if name in names_of(one)]
            if len(found) == 1:
                return found[0]
            if found:
                msg = f"{name} may be any of {', '.join(one.name() for one in found)}"
                raise UnknownModuleError(msg)
        msg = f"no formula was generated for {name}"
        raise UnknownModuleError(msg)

    def _refuse_circles(self) -> None:
        done: set[str] = set()
        for name in self.classes:
            self._follow(name, (), done)

    def _follow(self, name: str, above: tuple[str, ...], done: set[str]) -> None:
        if name in above:
            msg = " -> ".join((*above[above.index(name) :], name))
            raise CircularDependencyError(msg)
        if name in done or name not in self.classes:
            return
        for other in self.classes[name].depends:
            self._follow(other, (*above, name), done)
        done.add(name)


def _full_names(one: type[GeneratedModule]) -> set[str]:
    suffix = f"[{one.variant}]" if one.variant else ""
    return {name + suffix for name in (one.path, *one.aliases)}


def _short_names(one: type[GeneratedModule]) -> set[str]:
    suffix = f"[{one.variant}]" if one.variant else ""
    return {one.path.rpartition(".")[2] + suffix}


@cache
def registry() -> Registry:
    """The classes in all files of this package."""
    package = import_module(__package__)
    names = sorted(found.name for found in walk_packages(package.__path__, f"{__package__}."))
    members = [value for name in names for value in vars(import_module(name)).values()]
    classes = [value for value in members if isinstance(value, type) and issubclass(value, GeneratedModule)]
    return Registry(dict.fromkeys(one for one in classes if one is not GeneratedModule))


def compute_flops(module: str, /, **parameters: Value) -> Value:
    """The FLOPs of one call of a module class."""
    return registry().find(module).compute("flops", parameters)


def compute_memory(module: str, /, **parameters: Value) -> dict[str, Value | None]:
    """The bytes that one call of a module class reads, writes and holds; None where that is not known."""
    return _memory(registry().find(module), parameters)


def _memory(found: type[GeneratedModule], parameters: Mapping[str, Value]) -> dict[str, Value | None]:
    known = {"reads", "writes"} | found.parameters.keys()
    asked = ("reads", "writes", "intermediates", "weights")
    return {one: found.compute(one, parameters) if one in known else None for one in asked}
