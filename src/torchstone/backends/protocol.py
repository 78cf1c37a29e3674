"""The backend protocol, the ways in which a backend may refuse, and which packages are installed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

# --- The protocol ---


Args = tuple[object, ...]  # of a call of a module
Kwargs = dict[str, object]
Run = Callable[..., Any]


class Unsupported(Exception):  # noqa: N818 - a refusal is a finding about the backend, not an error of the caller
    """The backend says that it cannot do this op or module."""

    def __init__(self, message: str, *, ops: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ops = ops  # the ops it named, as "aten.mm.default" or as it writes them; empty when it named none


class CompileFailed(Exception):  # noqa: N818 - a finding, too
    """The backend broke while it compiled."""


class NotRun(Exception):  # noqa: N818 - not even a failure
    """It compiled, and that was all that was asked for: there are no values to compare."""


class OpeningFailed(Exception):  # noqa: N818 - reads as what happened
    """There is no such backend, or it does not take these options."""


@dataclass(frozen=True)
class Availability:
    """Whether a backend can run in this environment."""

    usable: bool
    reason: str = ""  # why not; "" when it is usable
    version: str = ""  # "torch 2.13.0, onnxruntime 1.31.1": what a result depends on
    needs: str = ""  # what to install; "" when it is usable


class Backend(Protocol):
    """One way to run a module.

    `compile` may put the work off until the first call of what it returns. So `compile`, the returned function and
    `export` all raise `Unsupported` or `CompileFailed`; any other exception is one of the run itself.

    A backend may also have `received_graphs(module, args, kwargs)`: the graphs it gets for a call, as `ReceivedGraph`
    records (see `backends.graphs`). Without it, the graph of torch.compile or torch.export is taken, if it uses one.
    """

    name: str
    forks: bool  # False: a process must not be forked after `warm_up`

    def availability(self) -> Availability:
        """Whether it can run here; cheap, imports nothing heavy."""

    def warm_up(self) -> None:
        """Import and set up what survives a fork; called once, before any module is seen."""

    def export(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, str]:
        """The module in the backend's own words: stage name -> text, in the order of the stages."""

    def compile(self, module: nn.Module, args: Args, kwargs: Kwargs) -> Run:
        """A function that takes args and kwargs on the CPU and gives the outputs there, nested as eager nests them."""

    def reset(self) -> None:
        """Forget everything that was compiled."""


# --- Installed packages, found without importing them ---


def installed(package: str) -> str | None:
    """The version of an installed package; None when there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def availability_of(packages: Sequence[str], *, needs: str, modules: Sequence[str] = ()) -> Availability:
    """Usable when every package is installed and every module can be found; the version names the packages.

    `needs` is what to do where they are missing: `pip install 'torchstone[iree]'`.
    """
    versions = {package: installed(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    missing += [module for module in modules if not _can_be_found(module)]
    known = ", ".join(f"{package} {found}" for package, found in versions.items() if found is not None)
    if missing:
        listed = " and ".join([", ".join(missing[:-1]), missing[-1]]) if missing[1:] else missing[0]
        return Availability(usable=False, reason=f"{listed} not installed", version=known, needs=needs)
    return Availability(usable=True, version=known)


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


# --- Helpers ---


def without_gradients(run: Run) -> Run:
    """The same function with autograd off."""
    import torch

    def call(*args: object, **kwargs: object) -> Any:
        with torch.no_grad():
            return run(*args, **kwargs)

    return call


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
