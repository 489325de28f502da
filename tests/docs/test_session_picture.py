"""docs/pictures/session.svg shows what the real programs print."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType

import pytest

from tests.rules.source import CHECKOUT
from tests.support.documents import differs

SCRIPT = CHECKOUT / "docs" / "pictures" / "session.py"


@pytest.fixture(scope="module")
def session() -> ModuleType:
    spec = importlib.util.spec_from_file_location("session_picture", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_picture_shows_the_output_of_the_programs(session: ModuleType) -> None:
    shown = session.texts(session.PICTURE.read_text(encoding="utf-8"))
    printed = [session.plain(line) for line in session.run_session()]
    why = differs(tuple(shown), "\n".join(printed))
    assert why is None, f"run: python docs/pictures/session.py\n{why}"


def test_drawn_lines_can_be_read_back(session: ModuleType) -> None:
    lines = [session.Line("$ ls  # all", typed=True), session.Line("\x1b[31ma < b\x1b[0m & c")]
    assert session.texts(session.draw(lines)) == ["$ ls  # all", "a < b & c"]


def test_progress_that_was_erased_is_not_shown(session: ModuleType) -> None:
    bar = "\r\x1b[2Kcapturing 10 files\r\x1b[2Kcapturing 20 files\r\n\x1b[?25h\r\x1b[1A\x1b[2K"
    assert list(session.shown(f"\x1b[?25lfirst\r\n{bar}captured\r\nstep\rlast\r\n")) == [
        "first",
        "captured",
        "last",
    ]


def test_picture_takes_about_20_seconds_and_loads_nothing(session: ModuleType) -> None:
    picture = session.PICTURE.read_text(encoding="utf-8")
    [seconds] = re.findall(r"animation:s ([\d.]+)s", picture)
    assert 15 < float(seconds) < 25
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
