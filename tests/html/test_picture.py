"""The README's picture of the page: the test draws it and checks that the stored one is up to date."""

from __future__ import annotations

import hashlib
import os
import zlib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from git_envhist.html import SCRIPTS
from tests.html.conftest import MOMENTS
from tests.support.programs import CHECKOUT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.full

PICTURE = os.environ.get("ENVHIST_TEST_PICTURES")
"""The directory for a new picture, if it is drawn for the README."""


def test_readme_picture_shows_the_current_page(
    browser: Browser, pages: dict[int, Path], tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 980})
    page = context.new_page()
    page.goto(pages[MOMENTS].as_uri())
    place = Path(PICTURE or tmp_path) / "page.png"
    page.screenshot(path=place)
    context.close()
    assert place.stat().st_size > 50_000
    place.write_bytes(signed(place.read_bytes(), look()))
    shown = (CHECKOUT / "docs/pictures/page.png").read_bytes()
    assert look() in shown, (
        "ENVHIST_TEST_PICTURES=docs/pictures pytest tests/html/test_picture.py draws it again"
    )


def look() -> bytes:
    """Return a fingerprint of the files that determine how a page looks."""
    room = files("git_envhist.html")
    parts = (room.joinpath(name).read_bytes() for name in ("page.html", "page.css", *SCRIPTS))
    return hashlib.sha256(b"\0".join(parts)).hexdigest().encode("ascii")


def signed(picture: bytes, words: bytes) -> bytes:
    """Return a PNG with a text chunk added before its last chunk."""
    chunk = b"tEXtLook\0" + words
    end = picture.index(b"IEND") - 4
    framed = (len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    return picture[:end] + framed + picture[end:]
