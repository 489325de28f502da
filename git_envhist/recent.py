"""Puts together what changed of late, from the tree, the logs of the machine and of npm, and git's reflog."""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from functools import cache
from struct import Struct
from typing import NamedTuple

from git_envhist.capture.probe_runner import MACHINE_ROOT
from git_envhist.diff.facts import role_of
from git_envhist.git.process import Git
from git_envhist.model import Change, ChangeSide, EntryKind, EnvPath, Fact, FactChange
from git_envhist.model.work import LogEvent, RecentChanges
from git_envhist.platform import open_itself
from git_envhist.probes import PACKAGES, file_module, file_probes
from git_envhist.probes.base import File, FileProbe
from git_envhist.secrets.masking import mask_text

# When a file came to be, where system and file system tell: `statx`, which Python does not offer.

AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800
SIZE = 256
BIRTH = Struct("@I76xqI")
"""The mask of what is filled in, and seconds and nanoseconds of the birth, as the kernel lays them out."""


def birth_time_ns(path: bytes) -> int | None:
    """The nanosecond in which a file was made; None where nobody knows."""
    ask = _statx()
    if ask is None:
        return _by_stat(path)
    buffer = ctypes.create_string_buffer(SIZE)
    if ask(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer) != 0:
        return None
    mask, seconds, rest = BIRTH.unpack_from(buffer)
    return seconds * 10**9 + rest if mask & STATX_BTIME else None


def _by_stat(path: bytes) -> int | None:
    try:
        born = getattr(os.lstat(path), "st_birthtime", None)
    except OSError:
        return None
    return None if born is None else int(born * 10**9)


@cache
def _statx() -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
    return found


# What installers and git wrote down: dpkg's and apt's logs, npm's, and the reflog (read as text: pure).
#
# Logs are others' and may hold anything: a line that is none is passed over. Their times are of the clock on the wall,
# but npm's, which are UTC.

DPKG = re.compile(
    r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (install|upgrade|remove|purge) (\S{1,200}) (\S{1,200}) (\S{1,200})$",
    re.MULTILINE,
)
NONE = "<none>"
APT_FIELD = re.compile(r"^(Start-Date|Commandline|Install): *(\S.*)$", re.MULTILINE)
APT_AUTOMATIC = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)? \([^()]*, automatic\)")
NPM_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d_\d\d_\d\d)_\d+Z-debug-\d+\.log\Z")
NPM_TITLE = re.compile(r"^\d+ verbose title (npm .{1,300})$", re.MULTILINE)
NPM_PLACE = re.compile(r"^\d+ verbose cwd (/.*)$", re.MULTILINE)
NPM_VERBS = frozenset(
    (
        "install",
        "i",
        "add",
        "ci",
        "clean-install",
        "uninstall",
        "remove",
        "rm",
        "un",
        "update",
        "up",
        "dedupe",
        "link",
    )
)
REFLOG = re.compile(r"HEAD@\{(\d{1,12})\}\Z")


def read_dpkg(
    texts: Iterable[str], since: datetime, zone: tzinfo, automatic: Collection[str]
) -> tuple[FactChange, ...]:
    """The packages that came, went or are of another version, from the oldest log to the newest."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for text in texts:
        for clock, verb, called, old, new in DPKG.findall(text):
            at = _time(clock, "%Y-%m-%d %H:%M:%S", zone)
            if at is None or at < since:
                continue
            name = called.partition(":")[0]
            before = None if verb == "install" or old == NONE else old
            after = None if verb in ("remove", "purge") or new == NONE else new
            found[name] = (found[name][0] if name in found else before, after)
    changed = {name: sides for name, sides in found.items() if sides[0] != sides[1]}
    return tuple(
        FactChange("system", name, *sides, by="dpkg", auto=name in automatic, role=role_of(name in automatic))
        for name, sides in sorted(changed.items())
    )


def read_apt(
    texts: Iterable[str], since: datetime, zone: tzinfo
) -> tuple[tuple[LogEvent, ...], frozenset[str]]:
    """The commands that apt was called with, and the packages that came along with others."""
    commands: list[LogEvent] = []
    automatic: set[str] = set()
    for text in texts:
        for stanza in text.split("\n\n"):
            told = dict(APT_FIELD.findall(stanza))
            at = _time(" ".join(told.get("Start-Date", "").split()), "%Y-%m-%d %H:%M:%S", zone)
            if at is None or at < since:
                continue
            automatic.update(APT_AUTOMATIC.findall(told.get("Install", "")))
            if "Commandline" in told:
                commands.append(LogEvent(at, told["Commandline"]))
    return tuple(commands), frozenset(automatic)


def npm_time(name: str) -> datetime | None:
    """When npm began to write a log of this name."""
    found = NPM_TIME.match(name)
    return _time(found[1], "%Y-%m-%dT%H_%M_%S", UTC) if found else None


def read_npm(text: str, root: str) -> str | None:
    """The command that a log is of, if it installs or removes anything in this directory or below it."""
    title, place = NPM_TITLE.search(text), NPM_PLACE.search(text)
    if (
        title is None
        or place is None
        or not (place[1] == root or place[1].startswith(root.rstrip("/") + "/"))
    ):
        return None
    words = title[1].split(" ")
    return title[1] if len(words) > 1 and words[1] in NPM_VERBS else None


def read_reflog(lines: Iterable[str], since: datetime, zone: tzinfo) -> Iterator[LogEvent]:
    """What moved HEAD: `HEAD@{<seconds>}`, commit and words, set apart by NUL."""
    for line in lines:
        selector, _, rest = line.partition("\0")
        commit, _, what = rest.partition("\0")
        found = REFLOG.match(selector)
        try:
            at = datetime.fromtimestamp(int(found[1]), UTC).astimezone(zone) if found else None
        except (ValueError, OverflowError, OSError):
            at = None
        if at is not None and at >= since:
            yield LogEvent(at, what, commit)


def _time(text: str, form: str, zone: tzinfo) -> datetime | None:
    try:
        return datetime.strptime(text, form).replace(tzinfo=zone)
    except ValueError:
        return None


# Finds what changed since a moment by the times that the kernel keeps: all of a tree, one look at each entry.
#
# The time of change (ctime) cannot be set by programs, as that of modification can, which pip, tar and the like set
# back. A directory that was written to, while nothing in it changed, has lost something, or something was moved out of
# it: what that was nobody can tell.

GIT = b".git"


class RecentEntry(NamedTuple):
    """An entry that changed."""

    path: EnvPath
    mode: int
    at: int
    """When, in nanoseconds."""
    born: bool
    """It came to be since; False also where that cannot be known."""


class RecentScan(NamedTuple):
    """What there is to see in a tree."""

    found: list[RecentEntry]
    lost: list[EnvPath]
    """Directories that lost something."""
    unread: list[EnvPath]
    looked: int


def walk(root: bytes, since: int, left_out: Callable[[bytes], bool]) -> RecentScan:
    """Look at everything below a directory, other file systems and git's own files left out."""
    walked = RecentScan([], [], [], 0)
    looked = 0
    device = os.lstat(root).st_dev
    waiting: list[tuple[bytes, bool]] = [(b"", os.lstat(root).st_mtime_ns >= since)]
    while waiting:
        here, written = waiting.pop()
        below = _look(root, here, since, device, walked, left_out)
        if below is None:
            walked.unread.append(EnvPath(here))
            continue
        directories, count, touched = below
        looked += count
        waiting += directories
        if written and not touched and not _came_to_be(os.path.join(root, here), since, empty=not count):
            walked.lost.append(EnvPath(here))
    return walked._replace(looked=looked)


def _came_to_be(place: bytes, since: int, *, empty: bool) -> bool:
    """Whether a directory was made since; an empty one may have been, where nobody knows."""
    born = birth_time_ns(place)
    return empty if born is None else born >= since


def _look(
    root: bytes, here: bytes, since: int, device: int, walked: RecentScan, left_out: Callable[[bytes], bool]
) -> tuple[list[tuple[bytes, bool]], int, bool] | None:
    """The directories in one, how many entries it has, and whether any of them changed."""
    place = root + b"/" + here if here else root
    prefix = here + b"/" if here else b""
    directories: list[tuple[bytes, bool]] = []
    count, touched = 0, False
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                count += 1
                path = prefix + entry.name
                try:
                    told = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                changed = told.st_ctime_ns >= since
                touched = touched or changed
                if entry.name == GIT or not (changed or stat.S_ISDIR(told.st_mode)) or left_out(path):
                    continue
                if stat.S_ISDIR(told.st_mode):
                    if told.st_dev == device:
                        directories.append((path, told.st_mtime_ns >= since))
                else:
                    born = (birth_time_ns(place + b"/" + entry.name) or 0) >= since
                    walked.found.append(RecentEntry(EnvPath(path), told.st_mode, told.st_ctime_ns, born))
    except OSError:
        return None
    return directories, count, touched


# The packages that changed, told by the same leaves as a snapshot's: they are shown the directories that changed.

NOT_INSTALLED = ("declared",)
"""Probes that tell what is asked for, and not what is there."""
MAX_PACKAGE_FILE = 8 << 20
NOT_KNOWN = ""
"""In the place of a version that there was before."""


def changed_packages(root: bytes, found: Iterable[RecentEntry]) -> tuple[FactChange, ...]:
    """What the changed files of installers say; what was there before they cannot."""
    places: dict[bytes, dict[bytes, RecentEntry]] = {}
    for one in found:
        directory, _, name = one.path.rpartition(b"/")
        places.setdefault(directory, {})[name] = one
    probes = [
        (probe, set(probe.reads) | set(probe.sees))
        for name, probe in file_probes().items()
        if probe.kind == PACKAGES and name not in NOT_INSTALLED
    ]
    told: dict[tuple[str, str, str], FactChange] = {}
    for directory, changed in places.items():
        for probe, patterns in probes:
            names = [name for name in changed if _is_meant(directory, name, patterns)]
            if names:
                born = all(changed[name].born for name in names)
                for fact in _facts(root, directory, probe, patterns):
                    told[fact.probe, fact.key, fact.value] = _as_fact_change(fact, born)
    return tuple(told[key] for key in sorted(told))


def _as_fact_change(fact: Fact, born: bool) -> FactChange:
    before = None if born else NOT_KNOWN
    return FactChange(
        fact.probe, fact.key, before, fact.value, fact.at, fact.by, fact.auto, role_of(fact.auto)
    )


def _facts(root: bytes, directory: bytes, probe: FileProbe, patterns: Iterable[bytes]) -> Iterator[Fact]:
    leaf = file_module(probe)
    try:
        if leaf.wants(directory):
            files = dict(_files(root, directory, probe, patterns))
            yield from list(leaf.facts_of(directory, files, lambda context, secret: None))
    except Exception:  # whatever it is: this one directory is among the files that changed all the same
        return


def _files(
    root: bytes, directory: bytes, probe: FileProbe, patterns: Iterable[bytes]
) -> Iterator[tuple[bytes, File]]:
    place = os.path.join(root, directory)
    for name in os.listdir(place):
        if _is_meant(directory, name, patterns):
            path = os.path.join(place, name)
            told = os.lstat(path)
            wanted = (
                stat.S_ISREG(told.st_mode)
                and told.st_size <= MAX_PACKAGE_FILE
                and _is_meant(directory, name, probe.reads)
            )
            yield name, File(_read(path) if wanted else None, told.st_size, False, b"")


def _read(path: bytes) -> bytes:
    with open(path, "rb", opener=lambda name, flags: open_itself(name, flags | os.O_NONBLOCK)) as file:
        return file.read(MAX_PACKAGE_FILE)


def _is_meant(directory: bytes, name: bytes, patterns: Iterable[bytes]) -> bool:
    here = directory.rpartition(b"/")[2]
    for pattern in patterns:
        place, slash, wanted = pattern.rpartition(b"/")
        if (not slash or place == here) and _matches(name, wanted):
            return True
    return False


def _matches(name: bytes, wanted: bytes) -> bool:
    if wanted.startswith(b"*"):
        return name.endswith(wanted[1:])
    return name.startswith(wanted[:-1]) if wanted.endswith(b"*") else name == wanted


DPKG_LOG, APT_LOG, NPM_LOGS = "var/log/dpkg.log", "var/log/apt/history.log", ".npm/_logs"
MAX_SIZE = 32 << 20
MAX_REFLOG = 1000
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
            return (file.read(MAX_SIZE).decode("utf-8", "replace"),)
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
    done = git.try_run("reflog", "show", "--date=unix", form, f"--max-count={MAX_REFLOG}", "HEAD", "--")
    lines = done.out.decode("utf-8", "replace").split("\n") if done.status == 0 else []
    return tuple(read_reflog(lines, since, until.tzinfo))[::-1]


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []
