"""Write the software bill of materials of torchstone as CycloneDX JSON: packages, versions and licences.

    python tools/sbom.py                    # what `pip install torchstone` brings, from this environment
    python tools/sbom.py --extra torch      # with an extra; may be repeated

Versions and licences are those of the packages that are installed here, as their own metadata state them. A package
that states no licence has none in the document.
"""

import argparse
import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[([\w,. -]+)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def closure(name: str, extras: frozenset[str], found: dict[str, Distribution]) -> None:
    """Add a package and all that it needs with these extras; what is not installed is for another system."""
    try:
        package = distribution(name)
    except PackageNotFoundError:
        return
    key = package.metadata["Name"].lower().replace("_", "-")
    if key in found and not extras:
        return
    found[key] = package
    for requirement in package.requires or ():
        wanted = _EXTRA.search(requirement)
        named = _REQUIREMENT.match(requirement)
        if named is not None and (wanted is None or wanted[1] in extras):
            closure(named[1], frozenset(re.findall(r"[\w-]+", named[2] or "")), found)


def licence_of(package: Distribution) -> str:
    """The licence as the package states it: an expression, a short text, or its classifiers."""
    metadata = package.metadata
    stated = next(iter([*(metadata.get_all("License-Expression") or ()), *(metadata.get_all("License") or ())]), "")
    listed = metadata.get_all("Classifier") or ()
    classifiers = [one.rpartition(" :: ")[2] for one in listed if one.startswith("License")]
    return stated if stated and "\n" not in stated else ", ".join(classifiers)


def document(packages: dict[str, Distribution]) -> dict[str, Any]:
    """The packages as CycloneDX 1.5; the first one is the application."""
    (_, root), *others = packages.items()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, kind="application")},
        "components": [component(package) for _, package in sorted(others)],
    }


def component(package: Distribution, *, kind: str = "library") -> dict[str, Any]:
    """One package."""
    name, version, licence = package.metadata["Name"], package.version, licence_of(package)
    row: dict[str, Any] = {"type": kind, "name": name, "version": version, "purl": f"pkg:pypi/{name.lower()}@{version}"}
    return row | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def main() -> None:
    """Print the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", action="append", default=[])
    given = parser.parse_args()
    found: dict[str, Distribution] = {}
    closure("torchstone", frozenset(given.extra), found)
    json.dump(document(found), sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
