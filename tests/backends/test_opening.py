from pathlib import Path
from textwrap import dedent

import pytest

from torchstone.backends.eager import Eager
from torchstone.backends.lookup import BUILT_IN, entry_point_backends, open_backend
from torchstone.backends.protocol import OpeningFailed

HALF = """
    class Half:
        name = "half"
        forks = True
"""
OWN = """
    from torchstone.backends.eager import Eager


    class Own(Eager):
        name = "own"

        def __init__(self, *, level: int = 0) -> None:
            if level > 3:
                raise ValueError("level goes up to 3")
            self.level = level
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "my_backend.py"
    path.write_text(dedent(text), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_backend_opens_under_its_name(name: str) -> None:
    assert open_backend(name).name == name


def test_a_class_in_a_file_opens_with_its_options(tmp_path: Path) -> None:
    path = written(tmp_path, OWN)

    backend = open_backend(f"{path}::Own", {"level": 2})

    assert (backend.name, vars(backend)) == ("own", {"level": 2})


def test_a_class_of_a_module_opens() -> None:
    assert isinstance(open_backend("torchstone.backends.eager:Eager"), Eager)


def test_an_installed_package_brings_its_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, OWN)
    facts = tmp_path / "acme-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text("[torchstone.backends]\nacme = my_backend:Own\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    assert entry_point_backends()["acme"] == "my_backend:Own"
    assert open_backend("acme").name == "own"


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("indutor", {}, "there is no backend 'indutor'; did you mean inductor?"),
        ("tensorrt", {}, "there is no backend 'tensorrt'; known are eager"),
        ("eager", {"speed": 1}, "backend eager has no option 'speed'; it takes none"),
        ("inductor", {"speed": 1}, "no option 'speed'; it takes fullgraph"),
        ("faulty", {"fault": "sleepy"}, "there is no fault 'sleepy'; known are wrong"),
        ("faulty", {"op": "aten.mm.*"}, "name a fault beside op"),
        ("faulty", {"fault": "wrong", "where": 1}, "where"),
        ("nowhere.py::Own", {}, "nowhere.py is not a Python file"),
        ("no_such_module:Own", {}, "there is no module no_such_module"),
        ("torchstone.backends.eager:Own", {}, "has no class Own"),
    ],
)
def test_what_cannot_be_opened_is_told_with_the_way_out(spec: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(OpeningFailed) as failed:
        open_backend(spec, options)

    assert said in str(failed.value)


def test_a_value_that_the_backend_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(OpeningFailed, match="level goes up to 3"):
        open_backend(f"{written(tmp_path, OWN)}::Own", {"level": 9})


def test_a_class_that_is_no_backend_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(OpeningFailed, match="it has no availability, warm_up, export, compile, reset"):
        open_backend(f"{written(tmp_path, HALF)}::Half")
