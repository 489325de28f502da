"""The page of a real history of 1,000 snapshots: `python -m tests.html.campaign [--at DIR] [--pictures DIR]`.

Creates the history of three months of a project (module `thousand`; it takes 15 minutes on two processors, and --at
keeps it), writes the page with the program and opens it in Chromium. Prints the page's size, its loading time, its
longest task while keys, search and charts are used, and the findings of axe-core. Run it under `chrt -f 10` for exact
times. The exit status is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.conftest import sealed_environment
from tests.html.conftest import AXE, PLACES, QUIET, Sight, violations
from tests.html.thousand import Life
from tests.support.programs import make_programs
from tests.support.repository import Repo

WATCH = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({ type: "longtask", buffered: true });
"""
# Scroll from top to bottom in three seconds and return the times between frames.
SCROLL = """() => new Promise((done) => {
  const far = document.documentElement.scrollHeight - innerHeight, gaps = [];
  let began, last;
  const frame = (now) => {
    began ??= now;
    if (last !== undefined) gaps.push(now - last);
    last = now;
    scrollTo(0, Math.min(1, (now - began) / 3000) * far);
    if (now - began < 3000) requestAnimationFrame(frame); else done(gaps);
  };
  requestAnimationFrame(frame);
})"""
USED = (
    ("a key (j, 50 times)", ["j"] * 50),
    ("End, Home", ["End", "Home"]),
    ("search, letter by letter", ["/", *"react npm", "Escape"]),
    ("by time, by step", []),
)
WIDTHS = ((1360, 900), (820, 1100), (380, 800))
MOST_BYTES = 5_000_000


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--moments", type=int, default=1000)
    words.add_argument("--at", type=Path, help="directory of the history, created if missing")
    words.add_argument("--pictures", type=Path, help="directory for pictures")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="envhist-page-") as place:
        above = asked.at or Path(place) / "life"
        repo = live(above, asked.moments)
        wrong = look(repo, Path(place), asked.pictures)
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


def live(above: Path, moments: int) -> Repo:
    """Return the repository with the history; create it if it does not exist."""
    known = (above / "whole").exists()
    for name in ("programs", "home"):
        (above / name).mkdir(parents=True, exist_ok=known)
    os.environ["PATH"] = os.pathsep.join((str(make_programs(above / "programs")), os.environ["PATH"]))
    (above / "home/.gitconfig").unlink(missing_ok=True)
    os.environ.update(sealed_environment(above / "home"))
    if known:
        return Repo(above / "shop", dict(os.environ))
    repo = Life(above).tell(moments)
    (above / "whole").touch()
    return repo


def look(repo: Repo, place: Path, pictures: Path | None) -> list[str]:
    page = place / "page.html"
    began = time.monotonic()
    repo.run("envlog", "--html", str(page), check=True)
    drawn = time.monotonic() - began
    began = time.monotonic()
    repo.run("envlog", "--json", "--stat", check=True)
    told = time.monotonic() - began
    chromium = next(filter(None, map(shutil.which, PLACES)))
    wrong = [] if page.stat().st_size < MOST_BYTES else ["the page is too large"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(QUIET))
        figures, found = measure(browser, page)
        wrong += found
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            picture(browser, page, pictures)
        wrong += accessible(browser, page, place)
        browser.close()
    rows = {
        "snapshots": repo.git("rev-list", "--count", "--glob=refs/envhist/heads/*"),
        "the page": f"{page.stat().st_size / 1e6:.2f} MB",
        "drawn by the program in": f"{drawn:.1f} s ({drawn / told:.2f} of `envlog --json --stat`)",
        **figures,
    }
    print("\n".join(f"| {name} | {value} |" for name, value in rows.items()))
    return wrong


def measure(browser: Browser, page: Path) -> tuple[dict[str, str], list[str]]:
    """Measure the page's speed in the window of a small notebook; return figures and errors."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.add_init_script(WATCH)
    seen = Sight(context.new_page())
    seen.page.goto(page.as_uri())
    shown = seen.page.evaluate("performance.now()")
    loading = longest(seen.page)
    gaps = seen.page.evaluate(SCROLL)
    figures = {
        "loaded after": f"{shown:.0f} ms, its longest task {loading:.0f} ms",
        "scrolled from top to end": f"{statistics.median(gaps):.0f} ms per frame, the slowest {max(gaps):.0f} ms",
    }
    for name, keys in USED:
        longest(seen.page)
        for key in keys:
            seen.page.keyboard.press(key)
        for button in () if keys else ("by time", "by step"):
            seen.page.get_by_role("button", name=button).click()
        found = longest(seen.page)
        figures[name] = f"longest task {found:.0f} ms" if found else "no task of 50 ms"
    context.close()
    return figures, seen.wrong


def longest(page: Page) -> float:
    """Return the longest task in milliseconds since the last call, or 0 if none took 50 ms."""
    page.wait_for_timeout(150)
    tasks = page.evaluate("window.tasks.splice(0)")
    return max(tasks, default=0.0)


def picture(browser: Browser, page: Path, place: Path) -> None:
    for width, height in WIDTHS:
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            seen = context.new_page()
            seen.goto(page.as_uri())
            for name, keys in pictured():
                for key in keys:
                    seen.keyboard.press(key)
                seen.wait_for_timeout(200)
                seen.screenshot(path=place / f"{width}-{scheme}-{name}.png")
            context.close()
    seen = browser.new_page()
    seen.goto(page.as_uri())
    seen.pdf(path=place / "printed.pdf", format="A4")


def pictured() -> Iterator[tuple[str, list[str]]]:
    yield "first", []
    yield "one", ["j", "b"]
    yield "search", ["/", *"pip"]
    yield "nothing", [*" no such word"]
    yield "oldest", ["Escape", "End"]
    yield "help", ["?"]


def accessible(browser: Browser, page: Path, place: Path) -> list[str]:
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place), AXE]
    if subprocess.run(words, check=False).returncode != 0:
        return ["axe-core cannot be installed"]
    axe = (place / "node_modules/axe-core/axe.min.js").read_text("utf-8")
    found = []
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme=scheme)  # type: ignore[arg-type]
        seen = context.new_page()
        seen.goto(page.as_uri())
        # axe-core takes half a minute for a thousand rows, and all rows have the same structure.
        seen.evaluate(
            "document.querySelectorAll('.row').forEach((row, place) => { if (place > 150) row.remove(); })"
        )
        found += violations(seen, axe)
        context.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
