"""docs/comparison.md names a test for each promise: every one of them is there."""

from __future__ import annotations

import re

from tests.rules.source import CHECKOUT
from tests.rules.test_contract import _exists

TEXT = (CHECKOUT / "docs/comparison.md").read_text(encoding="utf-8")
PLATFORMS = TEXT.partition("## With platforms' checkpoints")[2].partition("\n## ")[0]
ROWS = [line for line in PLATFORMS.splitlines() if line.startswith("| ")][2:]


def test_every_promise_of_platforms_has_a_test_that_exists() -> None:
    assert len(ROWS) > 15
    for row in ROWS:
        *_, tests, _ = row.split("|")
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", tests)
        assert named, row
        for path, name in named:
            assert (CHECKOUT / "tests" / path).is_file(), row
            assert not name or _exists(f"{path}::{name}"), row
