"""Models from user code: a file or importable module and a name in it, or a ModelLoader class with variants."""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import import_module, invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Protocol, TypeGuard, TypeVar

from torchstone.errors import ModelError, UnknownModelError
from torchstone.foreign import foreign_code, printable

T = TypeVar("T")

# --- Targets: a file or an importable module, and a name in it ---

TINY = "tiny:"  # before a model type of transformers; no name in anyone's code
_OF_A_TYPE = (TINY, "default:")
_DEFAULT_NAMES = ("load_model", "ModelLoader")
_paths: dict[Path, list[str]] = {}  # by folder: sys.path as its code left it
_siblings: set[str] = set()  # modules of user files, and those imported from the same folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One name in the user's code: `file.py::name[variant]` or `pkg.mod:name`."""

    text: str  # as the user wrote it
    module: str  # a path or a dotted name
    name: str
    variant: str | None = None
    is_file: bool

    def require_file(self) -> None:
        """Raise ModelError for a file that does not exist; whether a package has the module is seen on import."""
        if self.is_file and not Path(self.module).is_file():
            msg = f"the file {self.module} does not exist; give it as path/to/file.py::function"
            raise ModelError(msg)

    def is_same_module(self, other: "Target") -> bool:
        """Whether two targets stand in one file or module."""
        if self.is_file and other.is_file:
            return Path(self.module).resolve() == Path(other.module).resolve()
        return self.is_file == other.is_file and self.module == other.module

    @property
    def folder(self) -> Path:
        """The folder whose modules the code may import."""
        return Path(self.module).resolve().parent if self.is_file else Path.cwd()


def parse_target(text: str) -> Target | None:
    """Parse `file.py`, `file.py::name`, `file.py::name[variant]` or `pkg.mod:name`; None for any other text.

    One colon after a file works as well as two.
    """
    path, colons, name = text.rpartition("::" if "::" in text or ".py:" not in text else ":")
    if colons or text.endswith(".py"):
        name, bracket, variant = name.partition("[") if colons else ("", "", "")
        chosen = variant.removesuffix("]") if bracket else None
        return Target(text=text, module=path if colons else text, name=name, variant=chosen, is_file=True)
    module, colon, name = text.partition(":")
    if text.startswith(_OF_A_TYPE):
        return None
    if colon and name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return Target(text=text, module=module, name=name, is_file=False)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """The user's module after it ran."""

    target: Target
    module: ModuleType

    @classmethod
    def of(cls, target: Target) -> "UserCode":
        """Run the user's file, or import the module."""
        module = _run_file(target) if target.is_file else _import(target)
        return cls(target=target, module=module)

    def attribute(self, name: str) -> Any:
        """Look up a name in the module; the error for an unknown name lists the public ones."""
        if not name:
            name = next((default for default in _DEFAULT_NAMES if hasattr(self.module, default)), _DEFAULT_NAMES[0])
        try:
            return getattr(self.module, name)
        except AttributeError:
            known = ", ".join(self.public_names()) or "no function or class"
            msg = f"{self.target.module} has no {name!r}; it defines {known}"
            raise ModelError(msg) from None

    def defines(self, name: str) -> bool:
        """Whether the module itself defines a callable of this name."""
        return callable(getattr(self.module, name, None))

    def public_names(self) -> list[str]:
        """The functions and classes the module itself defines."""
        return sorted(
            name
            for name, value in vars(self.module).items()
            if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == self.module.__name__
        )

    def call(self, function: Callable[..., T], *args: object, name: str) -> T:
        """Call the user's code with its folder importable; an error message names the user's own line."""
        with (
            importable(self.target.folder),
            foreign_code(exit_is_answer=True) as ran,
        ):  # the user's code may raise anything
            return function(*args)
        error = ran.raised
        msg = f"{name} in {self.target.module} raised {_describe_error(error, self.target)}"
        raise ModelError(msg) from error


class _FromUserFolders(MetaPathFinder):
    """Finds modules of user files where nothing else does: a forward pass may import them while it runs.

    Folders without `__init__.py` are no modules here: one named `datasets` would pass for the library.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for folder, places in () if path is not None else reversed(_paths.items()):
            spec = PathFinder.find_spec(fullname, [one for one in places if one not in sys.path], target)
            if spec is not None and spec.origin is not None:
                if Path(spec.origin).is_relative_to(folder):
                    _siblings.add(fullname)
                return spec
        return None


_FINDER = _FromUserFolders()


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let code import the modules in its own folder and those that it put on sys.path; leave that as it was."""
    before = list(sys.path)
    known = set(sys.modules)
    own = _paths.get(folder, [str(folder)])
    sys.path[:] = [*own, *(path for path in before if path not in own)]
    invalidate_caches()
    try:
        yield
    finally:
        left = [*map(str, sys.path)]  # code may put anything there
        _paths[folder] = left if str(folder) in left else [str(folder), *left]
        sys.path[:] = before
        if _FINDER not in sys.meta_path:
            sys.meta_path.append(_FINDER)
        _siblings.update(name for name in set(sys.modules) - known if _is_in_folder(sys.modules[name], folder))


def _is_in_folder(module: ModuleType, folder: Path) -> bool:
    """Whether a module, or a package without a file, is the user's own and not an installed one."""
    try:
        places = [module.__file__] if getattr(module, "__file__", None) else list(getattr(module, "__path__", ()))
    except KeyError:  # a package without a file, inside one whose own import failed: it looks for its parent
        return False
    paths = [Path(place).resolve() for place in places if place is not None]
    return any(path.is_relative_to(folder) and "site-packages" not in path.parts for path in paths)


def _drop_siblings(folder: Path) -> None:
    """Drop modules that earlier user files imported if this folder has a module of the same name.

    Two models may each have their own layers.py; without this, the second would get the first one's.
    """
    here = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    for name in [name for name in _siblings if name.partition(".")[0] in here]:
        sys.modules.pop(name, None)
        _siblings.remove(name)


def _run_file(target: Target) -> ModuleType:
    target.require_file()
    path = Path(target.module).resolve()  # here: the user's code may change the folder
    with foreign_code(exit_is_answer=True) as ran:  # the user's code may raise anything
        levels = _relative_import_levels(path)
        folder = path.parents[levels]
        _drop_siblings(folder)
        with importable(folder):
            return _execute(path, levels)
    error = ran.raised
    msg = f"{target.module} cannot be imported: {_describe_error(error, target)}"
    raise ModelError(msg) from error


def _execute(path: Path, levels: int) -> ModuleType:
    """Run a file as a module of its own, or inside its package when it imports relatively."""
    if levels:
        parts = path.with_suffix("").parts[-levels - 1 :]
        return import_module(".".join(parts))
    name = path.stem if path.stem not in sys.modules else f"user_file_{path.stem}"  # never shadow a library
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - the suffix is .py
    assert spec.loader is not None  # noqa: S101 - the suffix is .py
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and inspect look classes up there
    spec.loader.exec_module(module)
    return module


def _relative_import_levels(path: Path) -> int:
    """How many folders up the file's relative imports reach: 0 for a file that stands alone."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


def _import(target: Target) -> ModuleType:
    # the user's code may raise anything
    with importable(Path.cwd()), foreign_code(exit_is_answer=True) as ran:
        return import_module(target.module)
    error = ran.raised
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and (target.module == missing or target.module.startswith(f"{missing}.")):
        msg = f"no module named {missing!r}, needed for {target.text}; check the name or install it"
        raise UnknownModelError(msg) from error
    msg = f"{target.module} cannot be imported: {_describe_error(error, target)}"
    raise ModelError(msg) from error


def _describe_error(error: BaseException, target: Target) -> str:
    """The error in one line, with the nearest line of the user's own code."""
    text = " ".join(str(printable(error)).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(target.folder)]
    ours = Path(__file__).resolve()
    others = [frame for frame in frames if Path(frame.filename).resolve() != ours and frame.filename[:1] != "<"]
    nearest = (own or others)[-1:]
    return f"{what} ({nearest[0].filename}:{nearest[0].lineno})" if nearest else what


# --- ModelLoader classes, as in tt-forge-models: load_model(), load_inputs() and variants ---

_NO_VARIANT = object()


class ModelLoader(Protocol):
    """What a class of user code must have to count as a model loader."""

    def load_model(self) -> object:
        """Build the model."""

    def load_inputs(self) -> object:
        """Build inputs for it."""


L = TypeVar("L", bound=ModelLoader)


def is_model_loader(value: object) -> TypeGuard[type[ModelLoader]]:
    """Whether a value is a class with both load_model and load_inputs."""
    return isinstance(value, type) and all(
        callable(getattr(value, name, None)) for name in ("load_model", "load_inputs")
    )


def make_loader(code: UserCode, loader_class: type[L], variant: str | None) -> L:
    """An instance for a variant given by its enum name or value, or for the loader's default variant."""
    name = code.target.name or loader_class.__name__
    if variant is None:
        return code.call(loader_class, name=name)
    chosen = _find_variant(code, loader_class, variant)
    return code.call(loader_class, chosen, name=f"{name}[{variant}]")


def _find_variant(code: UserCode, loader_class: type[ModelLoader], asked: str) -> object:
    known = _known_variants(code, loader_class)
    if not known:
        return asked  # the loader does not list its variants: let it decide
    found = next((variant for variant in known if asked in _names_of(variant)), _NO_VARIANT)
    if found is _NO_VARIANT:
        variants = ", ".join(sorted(_names_of(variant)[0] for variant in known))
        msg = f"{loader_class.__name__} in {code.target.module} has no variant {asked!r}; its variants are {variants}"
        raise ModelError(msg)
    return found


def _known_variants(code: UserCode, loader_class: type[ModelLoader]) -> list[object]:
    query = getattr(loader_class, "query_available_variants", None)
    if callable(query):
        return list(code.call(query, name=f"{loader_class.__name__}.query_available_variants") or ())
    return list(getattr(loader_class, "_VARIANTS", None) or ())


def _names_of(variant: object) -> tuple[str, ...]:
    """The names a user may write for a variant, the shown one first."""
    if isinstance(variant, Enum):
        return (str(variant.value), variant.name, str(variant))
    return (str(variant),)
