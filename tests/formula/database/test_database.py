import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formula.entries import entry, formulas
from torchstone.errors import InputError, UnknownFormulaError, UnreadableFileError
from torchstone.formula.database.files import (
    DATABASE_FILE,
    home_folder,
    key_of,
    load_file,
    load_formulas,
    load_shipped,
    own_entries,
    remove_entry,
    save_entry,
    save_file,
)
from torchstone.record.formula import FormulaDatabase, FormulaEntry, Status, Validation


def with_status(one: FormulaEntry, status: Status) -> FormulaEntry:
    from msgspec.structs import replace

    return replace(one, validation=Validation(status=status))


def test_every_shipped_entry_stands_under_its_own_key() -> None:
    modules = load_shipped().modules

    assert modules
    assert [key for key, one in modules.items() if key != key_of(one.module_path, one.variant)] == []


def test_the_shipped_file_is_written_as_save_file_writes_it(tmp_path: Path) -> None:
    import torchstone.formula

    shipped = Path(torchstone.formula.__path__[0]) / DATABASE_FILE
    save_file(tmp_path / DATABASE_FILE, load_shipped())

    assert shipped.read_bytes() == (tmp_path / DATABASE_FILE).read_bytes()
    assert load_file(shipped) == load_shipped()  # with the checks of files that others wrote


@pytest.mark.parametrize(
    "name",
    ["pkg.mod_x.Net", "Net", "pkg__mod_x__Net", "public.Net"],
)
def test_an_entry_is_found_by_path_class_key_and_alias(name: str) -> None:
    from msgspec.structs import replace

    known = formulas(replace(entry("pkg.mod_x.Net", "1"), aliases=("public.Net",)), entry("pkg.Other", "2"))

    assert known.find(name).module_path == "pkg.mod_x.Net"


def test_torch_nn_names_need_no_alias() -> None:
    known = formulas(entry("torch.nn.modules.sparse.Embedding", "0"))

    assert known.find("torch.nn.Embedding").module_path == "torch.nn.modules.sparse.Embedding"


def test_a_class_name_that_means_two_classes_is_refused_with_both() -> None:
    known = formulas(entry("a.Net", "1"), entry("b.Net", "2"))

    with pytest.raises(UnknownFormulaError, match=r"Net may be any of a\.Net, b\.Net"):
        known.find("Net")
    assert known.get("Net") is None


def test_a_whole_path_is_never_ambiguous() -> None:
    known = formulas(entry("Net", "1"), entry("b.Net", "2"))

    assert known.find("Net").module_path == "Net"


def test_variants_are_entries_of_their_own() -> None:
    known = formulas(entry("a.Net", "1"), entry("a.Net", "2", variant="eager"))

    assert known.find("Net[eager]").flop_analysis.formula_template == "2"
    assert known.variants_of("a.Net") == ("", "eager")
    with pytest.raises(UnknownFormulaError, match=r"no formula is known for a\.Net\[flash\]"):
        known.find("a.Net[flash]")


def test_an_unknown_class_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownFormulaError, match=r"did you mean a\.LlamaMLP\?"):
        formulas(entry("a.LlamaMLP", "1")).find("LlamaMPL")


def test_the_user_s_entries_lie_over_the_shipped_ones(tmp_path: Path) -> None:
    save_entry(entry("MLP", "7"), tmp_path)
    save_entry(entry("my.Net", "8"), tmp_path)
    known = load_formulas(tmp_path)

    assert known.find("MLP").flop_analysis.formula_template == "7"
    assert known.own == {"MLP", "my__Net"}
    assert known.find("TransformerBlock").module_path == "TransformerBlock"


def test_a_doubtful_entry_never_hides_a_shipped_one(tmp_path: Path) -> None:
    save_entry(with_status(entry("MLP", "7"), Status.PENDING), tmp_path)
    save_entry(with_status(entry("my.Net", "8"), Status.PENDING), tmp_path)
    known = load_formulas(tmp_path)

    assert known.find("MLP").flop_analysis.formula_template != "7"
    assert known.find("my.Net").validation.status is Status.PENDING
    assert set(own_entries(tmp_path).modules) == {"MLP", "my__Net"}


def test_an_entry_can_be_taken_back(tmp_path: Path) -> None:
    save_entry(entry("my.Net", "8"), tmp_path)

    assert remove_entry("Net", tmp_path).module_path == "my.Net"
    assert own_entries(tmp_path).modules == {}
    with pytest.raises(UnknownFormulaError):
        remove_entry("Net", tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema":"torchstone/trace/1"}', b"\xff\xfe", b"[]"])
def test_a_damaged_cache_is_reported_and_not_touched_by_reading(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / DATABASE_FILE).write_bytes(damage)

    known = load_formulas(tmp_path)

    assert str(tmp_path) in known.problems[0]
    assert known.get("MLP") is not None
    assert (tmp_path / DATABASE_FILE).read_bytes() == damage


def test_a_damaged_cache_is_put_aside_before_a_new_one_is_written(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / DATABASE_FILE).write_bytes(b"damaged")
        path, aside = save_entry(entry("my.Net", "8"), tmp_path)

        assert aside == tmp_path / f"module_db.damaged-{number}.json"
        assert aside.read_bytes() == b"damaged"
        assert "my__Net" in load_file(path).modules


def test_one_broken_entry_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    save_entry(entry("a.Net", "1"), tmp_path)
    path, _ = save_entry(entry("b.Net", "2"), tmp_path)
    path.write_text(path.read_text().replace('"formula_template": "1"', '"formula_template": 1'))
    known = load_formulas(tmp_path)

    assert known.own == {"b__Net"}
    assert "the entry a__Net in" in known.problems[0]
    _, aside = save_entry(entry("c.Net", "3"), tmp_path)
    assert set(own_entries(tmp_path).modules) == {"b__Net", "c__Net"}
    assert aside is not None
    assert "a__Net" in aside.read_text()


def test_an_entry_under_a_wrong_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    save_file(path, FormulaDatabase(modules={"a__Net": entry("a.Net", "1")}))
    path.write_text(path.read_text().replace('"a__Net"', '"b__Net"'))

    with pytest.raises(UnreadableFileError, match="under the key b__Net; it must be a__Net"):
        load_file(path)


def test_the_file_is_sorted_and_names_its_schema(tmp_path: Path) -> None:
    save_entry(entry("b.Net", "1"), tmp_path)
    path, _ = save_entry(entry("a.Net", "1"), tmp_path)
    document = json.loads(path.read_text())

    assert document["schema"] == "torchstone/module_db/1"
    assert list(document["modules"]) == ["a__Net", "b__Net"]


@given(st.lists(st.text(alphabet='ab "[]\\\n,:{}é', max_size=12), max_size=4).map(tuple))
def test_any_text_is_read_as_it_was_written(texts: tuple[str, ...]) -> None:
    from msgspec.structs import replace

    database = FormulaDatabase(modules={"a__Net": replace(entry("a.Net", "1"), assumptions=texts, domain=texts[::-1])})
    with TemporaryDirectory() as folder:
        save_file(Path(folder) / DATABASE_FILE, database)

        assert load_file(Path(folder) / DATABASE_FILE) == database


def test_lists_stand_on_one_line(tmp_path: Path) -> None:
    path, _ = save_entry(entry("a.Net", "1", "B", "S", domain=("B > 1", "S > 1")), tmp_path)

    assert '"parameters": ["B", "S"],' in path.read_text()
    assert '"domain": ["B > 1", "S > 1"],' in path.read_text()


def test_the_home_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHSTONE_HOME", str(tmp_path / "mine"))
    assert home_folder() == tmp_path / "mine"

    monkeypatch.delenv("TORCHSTONE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home_folder().name == "torchstone"


@pytest.mark.skipif(os.name != "posix", reason="the lock is that of POSIX")
def test_writers_in_several_processes_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.formula.entries import entry\n"
        "from torchstone.formula.database.files import save_entry\n"
        "for n in range(8): save_entry(entry(f'w{sys.argv[1]}.Net{n}', '1'), Path(sys.argv[2]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(number), str(tmp_path)], env=environment)
        for number in range(3)
    ]

    assert [writer.wait(600) for writer in writers] == [0, 0, 0]
    assert len(own_entries(tmp_path).modules) == 24


def test_a_home_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"cannot write to .*; set TORCHSTONE_HOME"):
        save_entry(entry("a.Net", "1"), tmp_path / "file")
