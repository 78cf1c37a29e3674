"""Which packages are installed here and in which version, found without importing them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from torchstone.backends.protocol import Availability


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
