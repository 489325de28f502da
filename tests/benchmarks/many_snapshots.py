"""A repository as it looks after two weeks of work: code commits on two branches, and real snapshots between them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from git_envhist.api import EnvHistory

TIMELINE = "laptop/shop-4f2a91"
BEGIN = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)
DAYS = 12
INTENTS = (
    "after package install",
    "settings for the payment service",
    "cart test fails",
    "cart test passes",
    "before the migration",
    "database filled again",
    "build with the new compiler",
)
SUBJECTS = (
    "cart: sum of an order",
    "pages: header",
    "payment: try again",
    "tests: empty cart",
    "build: smaller",
)
BRANCH_FROM, BRANCH_TO = 0.62, 0.9  # the part of the time in which work continues on a branch
NAMED = 25  # every 25th snapshot gets a name, hence a note


@contextmanager
def sealed(home: Path) -> Iterator[None]:
    """Hide this machine's git configuration from this process and its children."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "gitconfig").write_text(
        "[user]\n\tname = A Developer\n\temail = dev@example.com\n[init]\n\tdefaultBranch = main\n"
        "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n"
    )
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_", "LC_", "LESS"))]:
        del os.environ[name]
    os.environ |= {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
        "GIT_CEILING_DIRECTORIES": str(home.parent),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def git(top: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=top, check=True, capture_output=True, text=True)
    return done.stdout.removesuffix("\n")


def make_repository(top: Path, *, commits: int = 60, snapshots: int = 1000) -> EnvHistory:
    """Write the working tree, and let commits and snapshots alternate over the days."""
    top.mkdir(parents=True)
    git(top, "init", "-q", "--template=")
    git(top, "config", "envhist.timeline", TIMELINE)
    _fill(top)
    steps = [(number / commits, "commit", number) for number in range(commits)]
    steps += [((number + 0.5) / snapshots, "snapshot", number) for number in range(snapshots)]
    for part, kind, number in sorted(steps):
        _set_clock(part)
        if kind == "commit":
            _commit(top, part, number)
        else:
            _snapshot(top, number)
    del os.environ["GIT_COMMITTER_DATE"], os.environ["GIT_AUTHOR_DATE"]
    return EnvHistory.open(str(top), one_command=True)


def _fill(top: Path) -> None:
    (top / ".gitignore").write_text("/node_modules/\n/build/\n.env.local\n*.sqlite\n")
    for number in range(200):
        place = (
            top
            / ("src" if number < 80 else "node_modules")
            / f"part{number // 20:02}"
            / f"file{number:03}.js"
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"export const n{number} = {number};\n" * 20)


def _set_clock(part: float) -> None:
    # Spread the work from morning to evening.
    day, hour = divmod(part * DAYS, 1)
    now = BEGIN + timedelta(days=int(day), hours=hour * 10)
    os.environ["GIT_COMMITTER_DATE"] = os.environ["GIT_AUTHOR_DATE"] = now.strftime("%Y-%m-%dT%H:%M:%S+0000")


def _commit(top: Path, part: float, number: int) -> None:
    branch = git(top, "symbolic-ref", "--short", "HEAD")
    wanted = "payment" if BRANCH_FROM <= part < BRANCH_TO and number % 4 < 2 else "main"
    if branch != wanted:
        known = git(top, "for-each-ref", f"refs/heads/{wanted}")
        git(top, "checkout", "-q", "--merge", *([] if known else ["-b"]), wanted)
    place = top / "src" / f"{wanted}.js"
    place.write_text(f"export const step = {number};\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", f"{SUBJECTS[number % len(SUBJECTS)]} ({number + 1})")


def _snapshot(top: Path, number: int) -> None:
    (top / ".env.local").write_text(f"API_URL=http://localhost:{3000 + number}\n")
    (top / "build").mkdir(exist_ok=True)
    (top / "build" / f"out{number % 7}.js").write_text(f"var built = {number};\n" * 30)
    if number % 3 == 0:
        (top / "data.sqlite").write_bytes(number.to_bytes(4, "big") * 512)
    history = EnvHistory.open(str(top), workers="here", one_command=True)
    history.capture(f"{INTENTS[number % len(INTENTS)]} ({number + 1})")
    if number % NAMED == 0:
        history.name(f"moment-{number + 1}")
