"""Puts together what changed of late, from the tree, the logs of the machine and of npm, and git's reflog."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from git_envhist.capture.masking import mask_text
from git_envhist.capturing.facts import MACHINE_ROOT
from git_envhist.model import Change, ChangeSide, EntryKind
from git_envhist.model.causing import LogEvent, RecentChanges
from git_envhist.recently.logs import npm_time, read_apt, read_dpkg, read_npm, read_reflog
from git_envhist.recently.packages import changed_packages
from git_envhist.recently.walking import RecentEntry, walk
from git_envhist.store.git import Git

DPKG_LOG, APT_LOG, NPM_LOGS = "var/log/dpkg.log", "var/log/apt/history.log", ".npm/_logs"
LARGEST = 32 << 20
MOST_REFLOG = 1000
KINDS = {
    stat.S_IFLNK: EntryKind.LINK,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
    stat.S_IFCHR: EntryKind.CHARACTER_DEVICE,
    stat.S_IFBLK: EntryKind.BLOCK_DEVICE,
}
NUMBER = re.compile(r"\.(\d{1,4})(?:\.gz)?\Z")


def look(
    root: str,
    since: datetime,
    until: datetime,
    git: Git | None,
    left_out: Callable[[bytes], bool],
    environ: Mapping[str, str],
) -> RecentChanges:
    """Look at a directory, its machine and its user's logs; nothing is written anywhere."""
    zone = until.tzinfo
    assert zone is not None
    walked = walk(os.fsencode(root), int(since.timestamp() * 10**6) * 1000, left_out)
    machine = environ.get(MACHINE_ROOT) or "/"
    apt, automatic = read_apt(_texts(machine, APT_LOG, since), since, zone)
    system = read_dpkg(_texts(machine, DPKG_LOG, since), since, zone, automatic)
    commands = sorted([*apt, *_npm_commands(root, since, until, environ)])
    return RecentChanges(
        root,
        since,
        until,
        (*changed_packages(os.fsencode(root), walked.found), *system),
        tuple(sorted(map(_as_change, walked.found), key=lambda change: change.path)),
        {one.path: datetime.fromtimestamp(one.at / 10**9, zone) for one in walked.found},
        tuple(sorted(walked.lost)),
        tuple(sorted(walked.unread)),
        tuple(done._replace(what=mask_text(done.what)) for done in commands),
        tuple(done._replace(what=mask_text(done.what)) for done in _moves_of_head(git, since, until)),
        walked.looked,
    )


def _as_change(found: RecentEntry) -> Change:
    kind = KINDS.get(stat.S_IFMT(found.mode), EntryKind.FILE)
    side = ChangeSide(found.path, kind, stat.S_IMODE(found.mode), None)
    return Change(None if found.born else side, side)


def _texts(machine: str, path: str, since: datetime) -> Iterator[str]:
    """A log and those that it was rotated into, as far as they were written to since; the oldest first."""
    directory, name = os.path.split(os.path.join(machine, path))
    numbered = {0: name}
    for other in _listed(directory):
        found = NUMBER.search(other)
        if found is not None and other[: found.start()] == name:
            numbered[int(found[1])] = other
    for number in sorted(numbered, reverse=True):
        yield from _text(os.path.join(directory, numbered[number]), since)


def _text(path: str, since: datetime) -> Iterable[str]:
    try:
        if os.stat(path).st_mtime < since.timestamp():
            return ()
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            return (file.read(LARGEST).decode("utf-8", "replace"),)
    except (OSError, EOFError, zlib.error):
        # A log that is not ours to read, or half written: it tells nothing.
        return ()


def _npm_commands(
    root: str, since: datetime, until: datetime, environ: Mapping[str, str]
) -> Iterator[LogEvent]:
    cache = environ.get("npm_config_cache")
    directory = os.path.join(cache, "_logs") if cache else os.path.join(environ.get("HOME") or "/", NPM_LOGS)
    for name in sorted(_listed(directory)):
        at = npm_time(name)
        if at is not None and at >= since:
            for text in _text(os.path.join(directory, name), since):
                what = read_npm(text, root)
                if what is not None:
                    yield LogEvent(at.astimezone(until.tzinfo), what)


def _moves_of_head(git: Git | None, since: datetime, until: datetime) -> tuple[LogEvent, ...]:
    if git is None or until.tzinfo is None:
        return ()
    form = "--format=%gd%x00%H%x00%gs"
    done = git.try_run("reflog", "show", "--date=unix", form, f"--max-count={MOST_REFLOG}", "HEAD", "--")
    lines = done.out.decode("utf-8", "replace").split("\n") if done.status == 0 else []
    return tuple(read_reflog(lines, since, until.tzinfo))[::-1]


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
