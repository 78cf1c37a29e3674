import inspect
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from torchstone.errors import ModelError, UnknownModelError
from torchstone.models.user_code import Target, UserCode, parse_target


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def code_of(text: str) -> UserCode:
    target = parse_target(text)
    assert target is not None
    return UserCode.of(target)


@pytest.mark.parametrize(
    ("text", "module", "name", "variant", "is_file"),
    [
        ("a/net.py::load_model", "a/net.py", "load_model", None, True),
        ("net.py::ModelLoader[base]", "net.py", "ModelLoader", "base", True),
        ("net.py", "net.py", "", None, True),
        ("a/net.py:Net", "a/net.py", "Net", None, True),
        ("pkg.mod:factory", "pkg.mod", "factory", None, False),
    ],
)
def test_targets_are_read(text: str, module: str, name: str, variant: str | None, *, is_file: bool) -> None:
    assert parse_target(text) == Target(text=text, module=module, name=name, variant=variant, is_file=is_file)


@pytest.mark.parametrize("text", ["meta-llama/Llama-2-7b-hf", "tiny:deberta-v2", "model.pt2", "a b:c"])
def test_other_names_are_no_targets(text: str) -> None:
    assert parse_target(text) is None


def test_a_file_may_import_its_siblings_and_nothing_stays_on_the_path(tmp_path: Path) -> None:
    write(tmp_path / "ts_sibling.py", "VALUE = 7\n")
    file = write(
        tmp_path / "ts_net.py", "from ts_sibling import VALUE\ndef late():\n    import ts_sibling\n    return VALUE\n"
    )
    before = list(sys.path)
    code = code_of(f"{file}::late")
    assert code.call(code.attribute("late"), name="late") == 7
    assert sys.path == before


def test_what_a_file_makes_may_import_its_siblings_when_it_runs_later(tmp_path: Path) -> None:
    write(tmp_path / "ts_asked_late.py", "VALUE = 9\n")
    write(tmp_path / "ts_data" / "numbers.txt", "1")
    lines = "class Net:\n    def forward(self):\n        import ts_asked_late\n        return ts_asked_late.VALUE\n"
    code = code_of(f"{write(tmp_path / 'ts_forward.py', lines)}::Net")
    before = list(sys.path)

    assert code.attribute("Net")().forward() == 9

    assert sys.path == before
    assert find_spec("ts_data") is None, "a folder of data is no module"
    other = write(tmp_path / "other" / "ts_main.py", "import ts_asked_late\n")
    write(tmp_path / "other" / "ts_asked_late.py", "VALUE = 10\n")
    assert code_of(str(other)).module.ts_asked_late.VALUE == 10


@pytest.mark.parametrize("how", ["append({!r})", "insert(0, {!r})"])
def test_functions_of_a_file_may_import_from_folders_that_it_puts_on_the_path(tmp_path: Path, how: str) -> None:
    write(tmp_path / "lib" / "ts_library.py", "VALUE = 8\n")
    lines = f"import sys\nsys.path.{how.format(str(tmp_path / 'lib'))}\ndef late():\n"
    file = write(tmp_path / "code" / "ts_lazy.py", f"{lines}    import ts_library\n    return ts_library.VALUE\n")
    before = list(sys.path)
    code = code_of(f"{file}::late")
    sys.modules.pop("ts_library", None)
    assert code.call(code.attribute("late"), name="late") == 8
    assert sys.path == before


def test_two_files_have_their_own_siblings_of_the_same_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder / "ts_parts.py", f"NAME = {folder!r}\n")
        write(tmp_path / folder / "ts_main.py", "from ts_parts import NAME\n")
    assert [code_of(f"{tmp_path}/{folder}/ts_main.py").module.NAME for folder in ("a", "b", "a")] == ["a", "b", "a"]


def test_a_file_with_the_name_of_a_library_does_not_take_its_place(tmp_path: Path) -> None:
    import json

    code = code_of(f"{write(tmp_path / 'json.py', 'HERE = True')}::x")
    assert code.module.HERE is True
    assert sys.modules["json"] is json


def test_the_source_of_a_class_in_the_file_can_be_found(tmp_path: Path) -> None:
    file = write(tmp_path / "ts_source.py", "class Net:\n    pass\n")
    assert inspect.getsourcefile(code_of(f"{file}::Net").attribute("Net")) == str(file)


def test_relative_imports_work_from_inside_a_package(tmp_path: Path) -> None:
    write(tmp_path / "ts_zoo" / "base.py", "BASE = 1\n")
    file = write(
        tmp_path / "ts_zoo" / "resnet" / "pytorch" / "loader.py", "from ...base import BASE\ndef get(): return BASE\n"
    )
    assert code_of(f"{file}::get").module.BASE == 1


def test_two_packages_of_the_same_name_do_not_mix(tmp_path: Path) -> None:
    files = []
    for folder in ("a", "b"):
        write(tmp_path / folder / "ts_same" / "base.py", f"BASE = {folder!r}\n")
        files.append(write(tmp_path / folder / "ts_same" / "net" / "loader.py", "from ..base import BASE\n"))
    assert [code_of(f"{file}::x").module.BASE for file in files] == ["a", "b"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.py does not exist; give it as path/to/file\.py::function"):
        code_of(f"{tmp_path}/nowhere.py::load_model")


def test_a_missing_function_lists_what_the_file_offers(tmp_path: Path) -> None:
    file = write(
        tmp_path / "ts_few.py", "from json import dumps\ndef build(): ...\nclass Net: ...\ndef _hidden(): ...\n"
    )
    with pytest.raises(ModelError, match=r"has no 'load_model'; it defines Net, build$"):
        code_of(f"{file}::load_model").attribute("load_model")


def test_a_function_that_raises_is_told_with_the_users_own_line(tmp_path: Path) -> None:
    file = write(tmp_path / "ts_raises.py", "def load():\n    import json\n    return json.loads('{')\n")
    code = code_of(f"{file}::load")
    with pytest.raises(ModelError, match=r"load in .*ts_raises\.py raised JSONDecodeError: .*\(.*ts_raises\.py:3\)$"):
        code.call(code.attribute("load"), name="load")


def test_a_function_that_exits_does_not_end_the_program(tmp_path: Path) -> None:
    file = write(tmp_path / "ts_exits.py", "import sys\ndef load(): sys.exit(3)\n")
    code = code_of(f"{file}::load")
    with pytest.raises(ModelError, match="raised SystemExit: 3"):
        code.call(code.attribute("load"), name="load")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import no_such_package_xyz\n", r"No module named 'no_such_package_xyz' .*:1\)"),
        ("def f(:\n", r"SyntaxError: .*:1\)"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path / "ts_broken.py", text)
    with pytest.raises(ModelError, match=rf"ts_broken\.py cannot be imported: .*{expected}"):
        code_of(f"{file}::f")


def test_a_module_is_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ts_package" / "nets.py", "def build(): return 5\n")
    monkeypatch.chdir(tmp_path)
    code = code_of("ts_package.nets:build")
    assert code.call(code.attribute("build"), name="build") == 5


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownModelError, match=r"no module named 'ts_absent', needed for ts_absent\.mod:f"):
        code_of("ts_absent.mod:f")


def test_a_library_that_fails_to_import_inside_the_file_is_named(tmp_path: Path) -> None:
    """Importing a package that fails leaves its folders without a file behind, and those ask for their parent."""
    write(tmp_path / "half" / "__init__.py", "import half.inner.leaf\nimport no_such_module_at_all\n")
    write(tmp_path / "half" / "inner" / "leaf.py", "")
    write(tmp_path / "net.py", "def load_model():\n    import half\n")
    code = code_of(f"{tmp_path}/net.py::load_model")
    with pytest.raises(ModelError, match="no_such_module_at_all"):
        code.call(code.attribute("load_model"), name="load_model")
