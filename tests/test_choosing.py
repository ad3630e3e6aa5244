"""The choosing guide quotes no number that a record does not carry."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/choosing.md").read_text()


def test_every_table_of_the_guide_comes_from_records():
    tables = runpy.run_path(str(ROOT / "examples/choosing_tables.py"))
    assert tables["with_tables"](TEXT) == TEXT


def test_the_guide_has_no_number_outside_its_tables_and_its_code():
    rest = re.sub(r"<!-- (?!end)\w+ -->.*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    rest = re.sub(r"```.*?```|`[^`]*`", "", rest, flags=re.DOTALL)
    assert re.findall(r"\d[\d.,]*", rest) == []
