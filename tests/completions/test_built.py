"""The committed completions are up to date with the commands."""

from __future__ import annotations

import runpy
import sys

from tests.rules.source import CHECKOUT


def test_committed_completions_are_up_to_date() -> None:
    path = list(sys.path)
    try:
        files = runpy.run_path(str(CHECKOUT / "completions" / "build.py"))["files"]()
    finally:
        sys.path[:] = path
    stale = [place.name for place, text in files.items() if place.read_text(encoding="utf-8") != text]
    assert not stale, "run: python completions/build.py"
