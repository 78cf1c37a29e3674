from pathlib import Path

from tests.check.results import check_result, finding, module
from tests.report.folders import folder_of
from tests.report.traces import transformer
from torchstone.record import codec
from torchstone.record.check import Numbers, Proof
from torchstone.report.section import Column, ReportFolder, SectionView, Tone
from torchstone.report.sections.check import build

BAD = "model.layers.1.mlp"


def check_folder(path: Path, *, fails: bool = True) -> Path:
    """A report folder with a check of the transformer, of which one module fails."""
    trace = transformer(2)
    folder_of(trace, path)
    modules = []
    for one in trace.modules:
        bad = fails and (one.path == BAD or BAD.startswith(f"{one.path}.") or not one.path)
        status = "skipped" if bad and one.container else "failed" if bad else "inherited_success"
        modules.append(
            module(
                one.path, status, outcome="crashed" if status == "failed" else None, class_name=one.class_name,
                container=one.container, findings=("finding_001",) if fails and one.path == BAD else (),
                evidence=Proof(signal="SIGSEGV", last_output="<b>dead</b>") if status == "failed" else None,
                numbers=Numbers(pcc=0.25) if status == "failed" else None,
                irs=(f"irs/mod_{one.path}/aten.txt",) if one.path == BAD else (),
            )
        )  # fmt: skip
    findings = (finding(modules=(f"mod_{BAD}",), module_path=BAD, repro="repros/001_mm.py"),) if fails else ()
    codec.save(path / "check.json", check_result(*findings, modules=tuple(modules)))
    for name, text in (("repros/001_mm.py", "print('a script')"), (f"irs/mod_{BAD}/aten.txt", "graph():")):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def view_of(path: Path, *, fails: bool = True) -> SectionView:
    return build(ReportFolder(check_folder(path, fails=fails)))


def column(view: SectionView, table: str, name: str) -> Column:
    (found,) = (one for one in view.tables if one.name == table)
    return next(column for column in found.columns if column.name == name)


def test_a_failing_check_says_how_much_works_and_what_to_fix(tmp_path: Path) -> None:
    view = view_of(tmp_path)

    assert [(card.value, card.tone) for card in view.cards[:2]] == [("60.0%", Tone.BAD), ("1", Tone.BAD)]
    assert view.settings["sentence"].startswith("Fix this op")


def test_a_check_without_failures_is_good(tmp_path: Path) -> None:
    view = view_of(tmp_path, fails=False)

    assert (view.cards[0].value, view.cards[0].tone) == ("passed", Tone.GOOD)


def test_the_tree_has_the_status_of_every_module(tmp_path: Path) -> None:
    view = view_of(tmp_path)

    statuses = list(column(view, "check.tree", "status").values)
    assert statuses[0] == "failed"
    assert set(statuses) == {"failed", "skipped", "inherited_success"}
    assert len(view.module_columns[0].values) == len(transformer(2).modules)


def test_the_page_carries_scripts_and_ir(tmp_path: Path) -> None:
    view = view_of(tmp_path)

    assert view.settings["files"] == {"repros/001_mm.py": "print('a script')", f"irs/mod_{BAD}/aten.txt": "graph():"}


def test_a_long_file_is_cut_and_told(tmp_path: Path) -> None:
    check_folder(tmp_path)
    (tmp_path / "repros/001_mm.py").write_text("x" * 100_000)

    text = build(ReportFolder(tmp_path)).settings["files"]["repros/001_mm.py"]

    assert len(text) < 50_000
    assert text.endswith("... truncated; the whole file is repros/001_mm.py")


def test_the_error_of_a_module_is_told_in_full(tmp_path: Path) -> None:
    errors = set(column(view_of(tmp_path), "check.tree", "error").values)

    assert "ended by SIGSEGV\n<b>dead</b>" in errors


def test_the_json_twin_names_findings_and_counts(tmp_path: Path) -> None:
    document = view_of(tmp_path).document

    assert list(document["findings"][0]["ops"]) == ["aten.mm.default"]
    assert sum(document["counts"].values()) == len(document["modules"])
