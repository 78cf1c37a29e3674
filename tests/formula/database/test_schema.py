import json
from pathlib import Path

from torchstone.formula.database.files import DATABASE_FILE, SCHEMA_NAME, database_schema, load_shipped, save_file

PUBLISHED = Path(__file__).parents[3] / "docs" / "how-it-works" / "module_db.schema.json"


def test_the_published_schema_is_that_of_the_records() -> None:
    assert json.loads(PUBLISHED.read_text("utf-8")) == database_schema(), "run `make docs`"


def test_the_schema_names_every_key_of_an_entry(tmp_path: Path) -> None:
    save_file(tmp_path / DATABASE_FILE, load_shipped())
    document = json.loads((tmp_path / DATABASE_FILE).read_text())
    described = json.loads(PUBLISHED.read_text("utf-8"))["$defs"]["FormulaEntry"]["properties"].keys()

    assert document["schema"] == SCHEMA_NAME
    assert all(entry.keys() == described for entry in document["modules"].values())
