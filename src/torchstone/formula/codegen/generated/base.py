"""What every generated class has."""

from collections.abc import Mapping
from typing import ClassVar

from .exact import Value, whole


class GeneratedModule:
    """The costs of one module class; each quantity is a static method with keyword arguments."""

    path: ClassVar[str]
    variant: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    depends: ClassVar[tuple[str, ...]] = ()  # the names of the modules that are called
    status: ClassVar[str]
    parameters: ClassVar[Mapping[str, tuple[str, ...]]]  # quantity -> its parameters

    @classmethod
    def name(cls) -> str:
        """The class path, with the variant in brackets."""
        return f"{cls.path}[{cls.variant}]" if cls.variant else cls.path

    @classmethod
    def compute(cls, quantity: str, parameters: Mapping[str, Value]) -> Value:
        """One quantity; parameters that only another quantity has are left out, unknown ones are refused."""
        known = {name for names in cls.parameters.values() for name in names}
        unknown = [name for name in parameters if name not in known]
        if unknown:
            msg = f"{cls.name()} has no parameter {', '.join(unknown)}"
            raise TypeError(msg)
        if quantity not in cls.parameters:
            msg = f"{cls.name()} has no formula for {quantity}"
            raise LookupError(msg)
        used = {name: value for name, value in parameters.items() if name in cls.parameters[quantity]}
        result: Value = getattr(cls, quantity)(**used)
        return whole(result)
