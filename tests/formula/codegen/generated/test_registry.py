from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.formula.codegen.generated.packages import generate, run_bare
from tests.formula.entries import entry, formulas, memory
from torchstone.formula.codegen.generated import compute_flops, compute_memory, registry
from torchstone.formula.codegen.generated.base import GeneratedModule
from torchstone.formula.codegen.generated.registry import CircularDependencyError, Registry, UnknownModuleError


def generated(path: str, *depends: str, aliases: tuple[str, ...] = (), variant: str = "") -> type[GeneratedModule]:
    facts = {"path": path, "depends": depends, "aliases": aliases, "variant": variant, "parameters": {}}
    return type("Generated", (GeneratedModule,), facts)


def test_a_class_is_found_by_path_alias_and_class_name() -> None:
    net = generated("pkg.mod.Net", aliases=("pkg.Net",))
    known = Registry([net, generated("pkg.Other")])

    assert known.find("pkg.mod.Net") is known.find("pkg.Net") is known.find("Net") is net


def test_variants_are_asked_for_by_name() -> None:
    usual, eager = generated("pkg.Net"), generated("pkg.Net", variant="eager")
    known = Registry([usual, eager])

    assert known.find("Net") is usual
    assert known.find("Net[eager]") is known.find("pkg.Net[eager]") is eager


def test_unknown_and_ambiguous_names_are_refused() -> None:
    known = Registry([generated("a.Net"), generated("b.Net")])

    with pytest.raises(UnknownModuleError, match=r"Net may be any of a\.Net, b\.Net"):
        known.find("Net")
    with pytest.raises(UnknownModuleError, match="no formula was generated for Nothing"):
        known.find("Nothing")


def test_a_circle_is_refused_and_named() -> None:
    with pytest.raises(CircularDependencyError, match="B -> C -> B"):
        Registry([generated("A", "B"), generated("B", "C"), generated("C", "B")])


def test_a_class_that_two_others_use_is_no_circle() -> None:
    known = Registry([generated("A", "B", "C"), generated("B", "C"), generated("C")])

    assert set(known.classes) == {"A", "B", "C"}


def test_the_files_inside_torchstone_hold_no_classes_yet() -> None:
    assert registry().classes == {}
    for function in (compute_flops, compute_memory):
        with pytest.raises(UnknownModuleError):
            function("torch.nn.Linear")


def test_a_file_that_the_user_adds_is_discovered(tmp_path: Path) -> None:
    net = replace(entry("pkg.Net", "2 * ${n}", "n"), memory_analysis=memory("n", reads="2 * ${n}"))
    package = generate(formulas(net), tmp_path)
    original = (package / "pkg" / "net.py").read_text()
    changed = original.replace('"pkg.Net"', '"pkg.Mine"').replace("class PkgNet", "class PkgMine").replace("2 *", "3 *")
    (package / "pkg" / "mine.py").write_text(changed)

    assert [answer[0] for answer in run_bare(tmp_path, [("Net", {"n": 5}), ("Mine", {"n": 5})])] == [10, 15]
