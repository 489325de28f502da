"""Every command at 60, 80 and 200 columns, with colour and without, in a pipe and on a real terminal.

The expected output is in `tests/cli/golden/`, a file per command. `WRITE_GOLDEN=write` writes the files again, and
`git diff` shows what has changed. Ids, times of the machine and sizes that depend on compression are replaced.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from git_envhist.cli.subcommands import PROGRAMS, SUBCOMMANDS
from git_envhist.cli.terminal import width
from tests.support.depth import FULL
from tests.support.program_server import ProgramServer
from tests.support.repository import Repo, make_repo

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (60, 80, 200)
DAY = "2026-11-18T"
PAINT = re.compile(r"\x1b\[[0-9;]*m")
FAST = re.compile(r"\b[\d,]+(?:\.\d+ s| ms)\b")
SIZES = re.compile(r" *\b[\d.]+ (?:[KMG]i)?B\b")
STORED = re.compile(r"\b[\d.]+ [KMG]?i?B stored")
HEX = re.compile(r"(?:(?<=m)|\b)(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}|[0-9a-f]{7,12})\b")
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
    "du": ("git-envlog", "du"),
    "fsck": ("git-envlog", "fsck", "--quick"),
    "recent": ("git-envlog", "recent", "1h", "--", "データ"),
    "push-dry": ("git-envlog", "push", "-n"),
    "push-refused": ("git-envlog", "push"),
    "fetch": ("git-envlog", "fetch"),
    "purge-dry": ("git-envlog", "purge", "-n", ".env"),
    "undrop": ("git-envlog", "undrop"),
    "init": ("git-envlog", "init"),
    "uninstall": ("git-envlog", "uninstall"),
    "browse": ("git-envlog", "browse"),
    "watch": ("git-envlog", "watch", "--settle", "0"),
    "mcp": ("git-envlog", "mcp", "late"),
    "help": ("git-envhist", "-h"),
    "help-capture": ("git-envlog", "capture", "-h"),
    "help-restore": ("git-envlog", "help", "envrestore"),
    "names": ("git-envlog", "name"),
    "observe": ("git-envlog", "observe"),
    "drop-dry": ("git-envlog", "drop", "-n", "late"),
    "revert-dry": ("git-envlog", "revert", "-n", "late"),
    "merge-dry": ("git-envlog", "merge", "-n", "--base", "late~1", "late"),
    "why": ("git-envlog", "why", "app.py"),
    "blame": ("git-envlog", "blame", "app.py"),
    "error": ("git-envlog", "show", "lat"),
    "usage": ("git-envdiff", "--stats"),
}
CHANGING = {
    "capture": ("git-envlog", "capture", "one more\n\nwith a body"),
    "capture-checked": ("git-envlog", "capture", "checked", "--verify", "echo no; false"),
    "restore-part": ("git-envrestore", "first", "--", "app.py"),
    "verify": ("git-envlog", "verify", "--", "false"),
    "name": ("git-envlog", "name", "other", "late"),
    "note": ("git-envlog", "note", "late", "-m", "it was the proxy"),
    "restore": ("git-envrestore", "first"),
    "undo": ("git-envlog", "undo"),
    "run": ("git-envlog", "run", "-m", "built", "--", "touch", "built"),
    "effect": ("git-envlog", "effect", "deployed to staging"),
    "task": ("git-envlog", "task", "done", "1"),
    "redo": ("git-envlog", "redo"),
    "import": ("git-envlog", "import", "../elsewhere.envhist.tar.zst"),
    "export": ("git-envlog", "export", "../out.envhist.tar.zst", "first"),
    "bisect": ("git-envlog", "bisect", "--", "true"),
    "gc": ("git-envlog", "gc"),
    "purge": ("git-envlog", "purge", ".env"),
    "push": ("git-envlog", "push", "--yes"),
    "fork": ("git-envlog", "fork", "../golden-fork", "first"),
    "install-dry": ("git-envlog", "install", "--shell", "-n"),
    "drop": ("git-envlog", "drop", "late"),
    "prune-dry": ("git-envlog", "prune", "-n"),
}
AS_GIT_HAS_THEM = ("blame", "diff-patch", "diff-raw", "log-patch", "log-name-status")
"""Outputs with lines in git's own form: a patch, or one path per line."""
SIZES_VARY = ("du", "gc", "push", "push-dry", "push-refused", "export", "import", "purge")
ALONE = re.compile(r"""(?:.*\ \ |\W*|(?:hint|error|warning|note):\ )   # the beginning of a line, or of a column
    (?:\S+|\S*'[^']+'\S*|git\ [^;),]+)""", re.VERBOSE)  # fmt: skip
"""Text that may be longer than a line: a path, an id or a command alone on a line or in the last column."""
SAID_TOO = ("error", "usage", "recent", "push-dry", "push-refused", "fetch", "purge-dry", "undrop", "init", "uninstall",
            "browse", "watch", "mcp", "name", "note", "effect")  # fmt: skip
"""Commands without progress, whose standard error goes to the terminal, too."""
ALL_WAYS = [*product((None, *WIDTHS), ("never", "always"))]
WAYS = [(None, "never"), (60, "always"), (80, "never"), (200, "always")]
"""Each width and colour once; the most important commands get every combination."""
FEW_WAYS = [(None, "never"), (60, "always")]
"""In the default run: a pipe, and the terminal on which most lines are cut or broken."""
WIDE_WAYS = [(None, "never"), (200, "always")]
"""For commands whose line breaks depend on the name of the machine or the path of the installation."""
LOOKED_AT = ("log", "log-graph", "log-full", "show", "diff", "diff-stat", "restore-likeliest", "status")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a directory with a path of fixed length, because line breaks depend on it."""
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def shelf(place: Path) -> Repo:
    """Make the history that all commands use: wide letters, long words, a failed check, a secret, packages."""
    repo = make_repo(place / "repo")
    repo.git("config", "envhist.timeline", "laptop/app-4f2a91")
    # The number of packs depends on the number of processors.
    repo.git("config", "envhist.workers", "1")
    repo.git("init", "-q", "--bare", "--template=", "../remote.git")
    repo.git("remote", "add", "origin", "../remote.git")
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
    repo.run("envlog", "export", "../elsewhere.envhist.tar.zst", "late", check=True)
    return repo


def _take(repo: Repo, clock: str, *words: str) -> None:
    repo.env["GIT_COMMITTER_DATE"] = f"{DAY}{clock}:03+00:00"
    repo.run("envlog", "capture", *words, check=True)


@pytest.fixture
def fresh(shelf: Repo) -> Repo:
    """Return the repository with its original contents, whatever the previous command changed."""
    kept = shelf.path.parent / "kept"
    if not kept.exists():
        shutil.copytree(shelf.path, kept, symlinks=True)
        shutil.copytree(shelf.path.parent / "remote.git", kept.parent / "empty.git")
    shutil.rmtree(shelf.path)
    remote = shelf.path.parent / "remote.git"
    for place in (shelf.path.parent / "golden-fork", remote):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(kept.parent / "empty.git", remote)
    (shelf.path.parent / "out.envhist.tar.zst").unlink(missing_ok=True)
    shutil.copytree(kept, shelf.path, symlinks=True)
    return shelf


def plain(text: str, repo: Repo) -> str:
    """Return the output with everything replaced that differs between runs or machines."""
    seen: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        key = found[0][:7]
        return seen.setdefault(key, f"{len(seen) + 1:x}".rjust(7, "0")).ljust(len(found[0]), "0")

    text = text.replace(str(repo.path.parent), "<place>").replace(repo.env["HOME"], "<home>")
    text = re.sub(r"> /\S*/([^/\s]+)", r"> <program>/\1", text)
    text = STORED.sub("<size> stored", FAST.sub("<time>", text))
    # A longer check time has more digits and changes the line breaks.
    text = re.sub(r"<time>, carried over\s+from\s+", "<time>, carried over from ", text)
    # After midnight, the time an hour ago is printed with a date and changes the line breaks.
    text = re.sub(r"(?ms)^changes since [^,]*?,\s(found by[^:]*:)", _since, text)
    text = re.sub(r"[\w.-]+/golden-fork-[0-9a-f]{6}", "<host>/golden-fork-<id>", text)
    # The rest of a shortened id.
    text = re.sub(r"(?<= of )[0-9a-f]{1,6}(?=…)", lambda found: "x" * len(found[0]), text)
    return HEX.sub(number, text).replace("\x1b", "^")


def _since(found: re.Match[str]) -> str:
    return f"changes since <clock>, {' '.join(found[1].split())}"


@pytest.fixture(scope="module")
def server() -> Iterator[ProgramServer]:
    """Run the programs that write to a terminal without a new interpreter for each."""
    with ProgramServer() as started:
        yield started


def printed(
    repo: Repo, server: ProgramServer, name: str, columns: int | None, colour: str
) -> tuple[str, str]:
    """Return the output on a terminal of this width, or in a pipe, with standard error and the status."""
    if name in CHANGING:
        fresh.__wrapped__(repo)  # type: ignore[attr-defined]
    words = _coloured(READING.get(name) or CHANGING[name], colour)
    env = {"GIT_PAGER": "cat", "GIT_ADVICE": "0", "SHELL": "/bin/sh", "GIT_ENVHIST_WORKERS": "fork"}
    if name == "install-dry":
        place = repo.path.parent
        env |= {
            "HOME": f"{place}/home",
            "XDG_DATA_HOME": f"{place}/data",
            "XDG_CONFIG_HOME": f"{place}/config",
        }
    if columns is None:
        done = repo.run(words[0], *words[1:], env=env)
        return done.out, f"{done.err}[{done.status}]\n"
    env = {**repo.env, **env, "TERM": "xterm", "COLUMNS": str(columns)}
    return at_terminal(repo, server, words, env, said=name in SAID_TOO)


def at_terminal(
    repo: Repo, server: ProgramServer, words: tuple[str, ...], env: dict[str, str], *, said: bool
) -> tuple[str, str]:
    """Return standard output of a terminal, and standard error too if `said`."""
    ours, theirs = pty.openpty()
    with open(os.devnull, "rb") as nothing, tempfile.TemporaryFile() as beside:
        running = server.start(
            words, repo.path, env, (nothing.fileno(), theirs, theirs if said else beside.fileno())
        )
        os.close(theirs)
        shown = b""
        with suppress(OSError):
            while piece := os.read(ours, 4096):
                shown += piece
        status = running.wait()
        beside.seek(0)
        elsewhere = beside.read().decode()
    os.close(ours)
    # The number of progress lines depends on the time.
    text = re.sub(r"\r(?:\x1b\[K)?[^\n]*\r?\x1b\[K", "", shown.decode().replace("\r\n", "\n"))
    return text.replace("\r\x1b[K", ""), f"{elsewhere}[{status}]\n"


def _coloured(words: tuple[str, ...], colour: str) -> tuple[str, ...]:
    if words[0] != "git-envlog":
        return (words[0], f"--color={colour}", *words[1:])
    at = 2 if words[1:2] and words[1] in SUBCOMMANDS else 1
    return (*words[:at], f"--color={colour}", *words[at:])


@pytest.mark.parametrize("name", [*READING, *CHANGING])
def test_command_prints_its_golden_text(fresh: Repo, server: ProgramServer, name: str) -> None:
    ways = WIDE_WAYS if name in ("fork", "install-dry") else ALL_WAYS if name in LOOKED_AT else WAYS
    is_written = os.environ.get("WRITE_GOLDEN") == "write"
    tried = [way for way in ways if FULL or is_written or ways is WIDE_WAYS or way in FEW_WAYS]
    pages = []
    for columns, colour in tried:
        text, beside = printed(fresh, server, name, columns, colour)
        if columns is not None and name not in AS_GIT_HAS_THEM:
            assert not reaching_beyond(text, columns), columns
        text += beside
        if colour == "never":
            assert "\x1b" not in text
        head = f"=== {'pipe' if columns is None else f'terminal {columns}'}, colour {colour}\n"
        told = plain(text, fresh)
        pages.append(head + (SIZES.sub(" <size>", told) if name in SIZES_VARY else told))
    place = GOLDEN / f"{name}.txt"
    if is_written:
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(pages), encoding="utf-8")
    golden = re.split(r"(?m)^(?==== (?:pipe|terminal \d+), colour )", place.read_text(encoding="utf-8"))[1:]
    assert len(golden) == len(ways)
    assert "".join(golden[ways.index(way)] for way in tried) == "".join(pages)


def reaching_beyond(text: str, columns: int) -> list[str]:
    """Return the lines that are wider than the terminal although they could be broken."""
    lines = PAINT.sub("", text).splitlines()
    return [line for line in lines if width(line) > columns and not ALONE.fullmatch(line)]


def test_overlong_line_is_detected() -> None:
    assert reaching_beyond("words that go on and on", 10)
    assert reaching_beyond("words beside '/a/long/path'", 10)
    assert not reaching_beyond("  '/a/long path'", 10)
    assert not reaching_beyond("  12 B  /a/long/path", 10)


def test_every_program_is_among_them() -> None:
    assert {words[0] for words in (*READING.values(), *CHANGING.values())} >= set(PROGRAMS)


def test_every_subcommand_is_among_them() -> None:
    shown = {word for words in (*READING.values(), *CHANGING.values()) for word in words}
    assert set(SUBCOMMANDS) - shown == set()
