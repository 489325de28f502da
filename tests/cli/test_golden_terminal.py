"""Every command at 60, 80 and 200 columns, with colour and without, in a pipe and on a real terminal.

What comes stands in `tests/cli/golden/`, a file a command; `WRITE_GOLDEN=write` writes them anew, and `git diff`
shows what has changed. Ids, times of the machine and sizes that hang on compression are made equal.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS
from git_envhist.cli.terminal import width
from tests.support.repository import Repo, make_repo

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (60, 80, 200)
DAY = "2026-11-18T"
PAINT = re.compile(r"\x1b\[[0-9;]*m")
FAST = re.compile(r"\b\d+(?:\.\d+ s| ms)\b")
STORED = re.compile(r"\b[\d.]+ [KMG]?i?B stored")
HEX = re.compile(r"(?:(?<=m)|\b)(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{7,12})\b")
READING = {
    "log": ("git-envlog",),
    "log-oneline": ("git-envlog", "--oneline"),
    "log-graph": ("git-envlog", "--graph"),
    "log-full": ("git-envlog", "--full", "-2"),
    "log-stat": ("git-envlog", "--stat", "-2", "late"),
    "log-name-status": ("git-envlog", "--name-status", "-2", "late"),
    "log-patch": ("git-envlog", "-p", "-1", "late", "--", "app.py"),
    "show": ("git-envlog", "show", "late"),
    "show-now": ("git-envlog", "show", "now"),
    "diff": ("git-envdiff", "first", "late"),
    "diff-now": ("git-envdiff",),
    "diff-stat": ("git-envdiff", "--stat", "first", "late"),
    "diff-patch": ("git-envdiff", "-p", "first", "late"),
    "diff-raw": ("git-envdiff", "--raw", "first", "late"),
    "restore-likeliest": ("git-envrestore",),
    "restore-dry": ("git-envrestore", "-n", "first"),
    "status": ("git-envlog", "status"),
    "tasks": ("git-envlog", "task", "list"),
    "resume": ("git-envlog", "resume"),
    "capture-dry": ("git-envlog", "capture", "-n"),
    "key": ("git-envlog", "key"),
    "error": ("git-envlog", "show", "lat"),
    "usage": ("git-envdiff", "--stats"),
}
CHANGING = {
    "capture": ("git-envlog", "capture", "one more\n\nwith a body"),
    "verify": ("git-envlog", "verify", "--", "false"),
    "name": ("git-envlog", "name", "other", "late"),
    "note": ("git-envlog", "note", "late", "-m", "it was the proxy"),
    "restore": ("git-envrestore", "first"),
    "undo": ("git-envlog", "undo"),
    "run": ("git-envlog", "run", "-m", "built", "--", "touch", "built"),
    "effect": ("git-envlog", "effect", "deployed to staging"),
    "task": ("git-envlog", "task", "done", "1"),
    "fork": ("git-envlog", "fork", "../golden-fork", "first"),
    "install-dry": ("git-envlog", "install", "--shell", "-n"),
    "drop": ("git-envlog", "drop", "late"),
    "prune-dry": ("git-envlog", "prune", "-n"),
}
IN_COLUMNS = ("log", "log-oneline", "log-graph", "diff", "diff-now", "restore-likeliest", "status", "tasks")
"""What keeps to the width; what a card, a patch or a list of paths holds is not cut."""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """The history that all start from: wide letters, long words, a check that failed, a secret, packages."""
    repo = make_repo(tmp_path_factory.mktemp("golden") / "repo")
    repo.git("config", "envhist.timeline", "laptop/app-4f2a91")
    _take(repo, "10:02", "clean clone", "--name", "first", "--verify", "true")
    repo.write("app.py", "print('bye')\n")
    repo.write(".env", "API_URL=http://localhost\nTOKEN=1\n")
    for name, version in (("flask", "3.0.1"), ("jinja2", "3.1.6"), ("markupsafe", "3.0.2")):
        place = f".venv/lib/python3.11/site-packages/{name}-{version}.dist-info"
        repo.write(f"{place}/METADATA", f"Name: {name}\nVersion: {version}\n")
        repo.write(f"{place}/RECORD", "")
    repo.write(".venv/pyvenv.cfg", "version = 3.11.7\n")
    repo.write("データ/表.bin", b"\0\1\2")
    _take(repo, "10:18", "データベースの移行: a reason that is long enough to be cut on every narrow terminal there is",
          "--name", "late", "--verify", "exit 1")  # fmt: skip
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}10:20:00+00:00"
    repo.run("envlog", "task", "add", "write the parser", check=True)
    repo.run("envlog", "task", "start", "1", check=True)
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}10:24:00+00:00"
    repo.run("envrestore", "first", "--", "app.py", check=True)
    repo.write("app.py", "print('again')\n")
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}10:30:00+00:00"
    return repo


def _take(repo: Repo, clock: str, *words: str) -> None:
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}{clock}:03+00:00"
    repo.run("envlog", "capture", *words, check=True)


@pytest.fixture
def fresh(shelf: Repo) -> Repo:
    """The same place with the same contents, whatever the command before has done."""
    kept = shelf.path.parent / "kept"
    if not kept.exists():
        shutil.copytree(shelf.path, kept, symlinks=True)
    shutil.rmtree(shelf.path)
    shutil.rmtree(shelf.path.parent / "golden-fork", ignore_errors=True)
    shutil.copytree(kept, shelf.path, symlinks=True)
    return shelf


def plain(text: str, repo: Repo) -> str:
    """The output with everything equal that another run, or another machine, would have otherwise."""
    seen: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        key = found[0][:7]
        return seen.setdefault(key, f"{len(seen) + 1:x}".rjust(7, "0")).ljust(len(found[0]), "0")

    text = text.replace(str(repo.path.parent), "<place>").replace(repo.env["HOME"], "<home>")
    text = re.sub(r"> /\S*/([^/\s]+)", r"> <program>/\1", text)
    text = STORED.sub("<size> stored", FAST.sub("<time>", text))
    text = re.sub(r"[\w.-]+/golden-fork-[0-9a-f]{6}", "<host>/golden-fork-<id>", text)
    # What is left of an id that was cut.
    text = re.sub(r"(?<= of )[0-9a-f]{1,6}(?=…)", lambda found: "x" * len(found[0]), text)
    return HEX.sub(number, text).replace("\x1b", "^")


def printed(repo: Repo, words: tuple[str, ...], columns: int | None, colour: str, fresh_copy: bool) -> str:
    """What comes on a terminal of that width, or in a pipe; the status stands behind it."""
    if fresh_copy:
        fresh.__wrapped__(repo)  # type: ignore[attr-defined]
    env = {"GIT_PAGER": "cat", "GIT_ADVICE": "0", "SHELL": "/bin/sh"}
    words = (
        (*words[:1], f"--color={colour}", *words[1:])
        if words[0] != "git-envlog"
        else _coloured(words, colour)
    )
    if columns is None:
        done = repo.run(words[0], *words[1:], env=env)
        return f"{done.out}{done.err}[{done.status}]\n"
    shown, status = at_terminal(repo, words, {**repo.env, **env, "TERM": "xterm", "COLUMNS": str(columns)})
    return f"{shown}[{status}]\n"


def at_terminal(repo: Repo, words: tuple[str, ...], env: dict[str, str]) -> tuple[str, int]:
    """What comes where the answer alone goes to a terminal: progress, which hangs on the hour, goes elsewhere."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=repo.path, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE
    ) as child:
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while piece := os.read(ours, 4096):
                shown += piece
        assert child.stderr is not None
        said = child.stderr.read()
        status = child.wait()
    os.close(ours)
    return (shown + said).decode().replace("\r\n", "\n"), status


def _coloured(words: tuple[str, ...], colour: str) -> tuple[str, ...]:
    at = 2 if words[1:2] and words[1] in SUBCOMMANDS else 1
    return (*words[:at], f"--color={colour}", *words[at:])


@pytest.mark.parametrize("name", [*READING, *CHANGING])
def test_what_comes_is_what_stands_there(fresh: Repo, name: str) -> None:
    words = READING.get(name) or CHANGING[name]
    # What changes something is shown once of each kind; it does not hang on the width but for its lines.
    ways = (
        [*product((None, *WIDTHS), ("never", "always"))]
        if name in READING
        else [(None, "never"), (60, "always")]
    )
    pages = []
    for columns, colour in ways:
        text = printed(fresh, words, columns, colour, name in CHANGING)
        if columns is not None and name in IN_COLUMNS:
            too_wide = [
                line
                for line in PAINT.sub("", text).splitlines()
                if width(line) > columns and "error" not in line
            ]
            assert not too_wide, (columns, too_wide)
        if colour == "never":
            assert "\x1b" not in text
        head = f"=== {'pipe' if columns is None else f'terminal {columns}'}, colour {colour}\n"
        pages.append(head + plain(text, fresh))
    place = GOLDEN / f"{name}.txt"
    if os.environ.get("WRITE_GOLDEN") == "write":
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(pages), encoding="utf-8")
    assert place.read_text(encoding="utf-8") == "".join(pages)


def test_every_program_is_among_them() -> None:
    assert {words[0] for words in (*READING.values(), *CHANGING.values())} == set(PROGRAMS)
