import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.databases import database_in, master_file, text_file
from torchstone.errors import InputError
from torchstone.workflows.configs import (
    CoverageRequest,
    ExportFormat,
    ExportRequest,
    ImportRequest,
    export_configurations,
    import_files,
    list_ops,
    measure_coverage,
    merge_databases,
    read_contents,
    show_op,
    vacuum_database,
    verify_database,
)
from torchstone.workflows.database import ConfigurationFilter


def test_files_are_imported_one_after_another(tmp_path: Path) -> None:
    database = str(tmp_path / "x.db")
    paths = (master_file(tmp_path), text_file(tmp_path))

    first, second = import_files(ImportRequest(paths=paths, database=database))

    assert (first.format, first.new, first.hashes.verified) == ("ttnn_master_v2", 2, 2)
    assert (second.format, second.new, second.calls) == ("aten_text", 4, 79)
    assert read_contents(database).info.configurations == 6
    (again,) = import_files(ImportRequest(paths=paths[1:], database=database))
    assert (again.new, again.known) == (0, 4)


def test_the_suffix_names_the_format_of_an_export(tmp_path: Path) -> None:
    database = database_in(tmp_path)
    out = tmp_path / "x.py"

    exported = export_configurations(
        ExportRequest(output=out, wanted=ConfigurationFilter(op="aten.addmm.default"), database=database)
    )

    assert exported.configurations == 1
    assert "pytest.param(" in out.read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"the suffix of x\.doc does not name a format; give --format"):
        export_configurations(ExportRequest(output=tmp_path / "x.doc", database=database))
    named = ExportRequest(output=tmp_path / "x.doc", format=ExportFormat.JSONL, database=database)
    assert export_configurations(named).configurations == 6


def test_merging_a_database_twice_changes_nothing(tmp_path: Path) -> None:
    database, other = str(tmp_path / "x.db"), database_in(tmp_path)

    first, second = merge_databases([other, other], database)

    assert (first.added.new, first.added.known) == (6, 0)
    assert (second.added.new, second.added.known) == (0, 6)


def test_a_sound_database_has_no_problems_and_loses_nothing_when_vacuumed(tmp_path: Path) -> None:
    database = database_in(tmp_path)
    found = verify_database(database)
    assert (found.configurations, found.problems, len(found.hashes)) == (6, (), 2)

    vacuumed = vacuum_database(database)

    assert vacuumed.before_bytes is not None
    assert verify_database(database) == found


def test_ops_are_listed_and_shown_by_a_part_of_their_name(tmp_path: Path) -> None:
    database = database_in(tmp_path)
    tiny = ConfigurationFilter(model="tiny")

    assert [one.op for one in list_ops(tiny, database)] == ["ttnn.fill_cache"]
    assert {one.configuration.op for one in show_op("addmm", ConfigurationFilter(), database)} == {"aten.addmm.default"}
    with pytest.raises(InputError, match=r"no op 'admm'; did you mean aten\.addmm\.default"):
        show_op("admm", ConfigurationFilter(), database)


def test_a_model_without_a_sweep_is_not_covered(tmp_path: Path) -> None:
    found = measure_coverage(CoverageRequest(model="albert", backend="eager", database=database_in(tmp_path)))

    assert not found.has_results
    assert (found.coverage.calls, found.coverage.passed_calls) == (79, 0)


def test_the_coverage_of_a_model_is_kept_until_the_database_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHSTONE_CACHE", str(tmp_path / "cache"))
    database = Path(database_in(tmp_path))
    request = CoverageRequest(model="albert", backend="eager", database=str(database))
    first = measure_coverage(request)
    assert not list((tmp_path / "cache").glob("*.answer"))  # a file that has just changed may change again unseen
    os.utime(database, ns=(10**18, 10**18))
    measure_coverage(request)

    with monkeypatch.context() as closed:
        closed.setattr("torchstone.workflows.configs.open_store", _refused)
        assert measure_coverage(request) == first
        with pytest.raises(AssertionError, match="opened"):
            measure_coverage(replace(request, backend="inductor"))
        os.utime(database, ns=(10**18, 10**18 + 1))
        with pytest.raises(AssertionError, match="opened"):
            measure_coverage(request)
        os.utime(database, ns=(10**18, 10**18))
        database.with_name(f"{database.name}-wal").write_bytes(b"a transaction that is not in the file yet")
        with pytest.raises(AssertionError, match="opened"):
            measure_coverage(request)


def _refused(*_: object, **__: object) -> None:
    msg = "the database is opened"
    raise AssertionError(msg)
