"""Fixtures: Chromium, and pages of one history that is captured once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from git_envhist.cli.views.html import json_values_with_sizes
from git_envhist.html import document
from tests.html.workshop import Workshop
from tests.support.needs import require, skip_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
PLACES = ("chromium", "chromium-browser", "google-chrome")
MOMENTS = 60
AXE = "axe-core@4"


# Closed after the tests of this package, because an open browser keeps an event loop running in this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    place = next(filter(None, map(shutil.which, PLACES)), None)
    if place is None:
        skip_without("chromium")
    from playwright.sync_api import sync_playwright  # installed only for --full

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=place, args=list(QUIET))
        yield started
        started.close()


@pytest.fixture(scope="session")
def values(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Return the snapshots of the example shop as values of `git envlog --json --stat`, newest first."""
    history = Workshop(tmp_path_factory.mktemp("work") / "shop").tell(MOMENTS)
    return json_values_with_sizes(history, history.log(), most_paths=200)


@pytest.fixture(scope="session")
def pages(values: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Write pages with one snapshot, with all, and with 1,000; return each path by its number of snapshots."""
    place = tmp_path_factory.mktemp("pages")
    many = [{**values[number % MOMENTS], "id": f"{number:040x}"} for number in range(1000)]
    found = {}
    for moments in (values[-1:], values, many):
        found[len(moments)] = place / f"{len(moments)}.html"
        found[len(moments)].write_text(document("shop", str(values[0]["at"]), moments), "utf-8")
    return found


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install axe-core, a checker of accessibility, and return its script."""
    npm = require("npm")
    place = tmp_path_factory.mktemp("axe")
    words = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), AXE]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(place)}
    )
    if done.returncode != 0:
        pytest.skip(f"axe-core cannot be installed: {done.stderr.strip()[:200]}")
    return (place / "node_modules/axe-core/axe.min.js").read_text("utf-8")


class Sight:
    """An open page, with all errors, warnings and network requests that occurred in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on(
            "console",
            lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.on(
            "request",
            lambda asked: self.wrong.append(asked.url) if asked.url[:5] not in ("file:", "data:") else None,
        )

    @property
    def chosen(self) -> str:
        return self.page.locator("[aria-current=true] .why").inner_text()

    def rows(self) -> int:
        return self.page.locator(".row:not([hidden])").count()


@pytest.fixture
def sight(browser: Browser, pages: dict[int, Path]) -> Iterator[Sight]:
    """Open the page with all snapshots in the window of a small notebook."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    seen = Sight(context.new_page())
    seen.page.goto(pages[MOMENTS].as_uri())
    yield seen
    context.close()
    assert not seen.wrong


def violations(page: Page, axe: str) -> list[str]:
    """Return the findings of axe-core, one line each."""
    page.evaluate(axe)
    found = json.loads(page.evaluate("axe.run().then((done) => JSON.stringify(done.violations))"))
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:160]}" for one in found]
