"""Decision records have consecutive numbers, which their titles repeat."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"


def test_each_record_has_the_next_number_in_name_and_title() -> None:
    records = sorted(DECISIONS.glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        title = record.read_text().partition("\n")[0]
        assert re.match(rf"# {int(record.name[:4])}\. ", title), f"{record.name}: {title}"
