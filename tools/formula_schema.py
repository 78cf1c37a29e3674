"""Write the JSON Schema of the formula database into docs/how-it-works."""

import json
from pathlib import Path

from torchstone.formula.database.files import database_schema

PAGE = Path(__file__).parent.parent / "docs" / "how-it-works" / "module_db.schema.json"


def main() -> None:
    """Write the file anew."""
    PAGE.write_text(json.dumps(database_schema(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
