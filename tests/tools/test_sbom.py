import json
import subprocess
import sys

from tests.architecture.repository import ROOT


def test_the_bill_of_materials_has_every_required_package_with_its_licence() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "sbom.py"], capture_output=True, text=True, check=True, timeout=600
    )
    document = json.loads(done.stdout)

    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "torchstone"
    found = {one["name"].lower(): one for one in document["components"]}
    assert {"click", "jinja2", "msgspec", "markupsafe"} <= set(found)
    assert "torch" not in found
    assert all(one["version"] and one["purl"].startswith("pkg:pypi/") for one in found.values())
    assert all(found[name]["licenses"] for name in ("click", "jinja2", "msgspec"))
