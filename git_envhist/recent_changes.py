"""Find what changed recently without a snapshot: for `git envlog recent`.

Three sources are combined: change times of the working tree, the logs of dpkg, apt and npm, and git's reflog. A program
cannot set the change time (ctime) of a file, while pip, tar and others set its modification time back. A directory that
was written to although nothing in it changed has lost an entry, or one was moved out; nothing shows which. The packages
of changed directories are read by the same probes as for a snapshot. Nothing is written anywhere.
"""

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
from git_envhist.config import Settings
from git_envhist.diff.facts import order_by_probe, role_of
from git_envhist.diff.importance import by_importance
from git_envhist.diff.required_packages import PROBE as DECLARED
from git_envhist.diff.required_packages import assign_roles
from git_envhist.git.current_actor import LocalZone
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.history.times import read_time_span
from git_envhist.model import Change, ChangeSide, EntryKind, EnvPath, Fact, FactChange
from git_envhist.model.recent import LogEvent, RecentChanges
from git_envhist.platform import open_nofollow
from git_envhist.probes import PACKAGES, file_module, file_probes
from git_envhist.probes.base import FileProbe, ProbedFile
from git_envhist.secrets.masking import mask_text
from git_envhist.worktree.path_patterns import left_out_of

# Times of birth, by `statx`, which Python does not offer.

AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800
SIZE = 256
BIRTH = Struct("@I76xqI")
"""The mask of the valid fields, and seconds and nanoseconds of the birth, in the kernel's layout."""


def birth_time_ns(path: bytes) -> int | None:
    """Return the time of birth of a file in nanoseconds; None if the system does not know it."""
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


# Parse the logs of dpkg, apt and npm, and the reflog (pure).
#
# A log may contain anything: other lines are skipped. Times are local, except npm's, which are UTC.

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
    """Return the packages installed, removed or upgraded, from the oldest log to the newest."""
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
    """Return the commands of apt, and the packages that it installed as dependencies."""
    commands: list[LogEvent] = []
    automatic: set[str] = set()
    for text in texts:
        for stanza in text.split("\n\n"):
            fields = dict(APT_FIELD.findall(stanza))
            at = _time(" ".join(fields.get("Start-Date", "").split()), "%Y-%m-%d %H:%M:%S", zone)
            if at is None or at < since:
                continue
            automatic.update(APT_AUTOMATIC.findall(fields.get("Install", "")))
            if "Commandline" in fields:
                commands.append(LogEvent(at, fields["Commandline"]))
    return tuple(commands), frozenset(automatic)


def npm_time(name: str) -> datetime | None:
    """Return the time in the name of a log of npm; None for another name."""
    found = NPM_TIME.match(name)
    return _time(found[1], "%Y-%m-%dT%H_%M_%S", UTC) if found else None


def read_npm(text: str, root: str) -> str | None:
    """Return the command of a log of npm, if it installs or removes something in or below a directory."""
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
    """Yield the moves of HEAD from lines of `HEAD@{<seconds>}`, commit and message, separated by NUL."""
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


# Walk the tree and compare change times, with one stat per entry.

GIT = b".git"


class RecentEntry(NamedTuple):
    """An entry that changed."""

    path: EnvPath
    mode: int
    at: int
    """The change time in nanoseconds."""
    born: bool
    """True if it was created since; False if it was not, or the system does not know."""


class RecentScan(NamedTuple):
    """The changed entries of a tree."""

    found: list[RecentEntry]
    lost: list[EnvPath]
    """Directories that lost an entry."""
    unread: list[EnvPath]
    looked: int


def walk(root: bytes, since: int, left_out: Callable[[bytes], bool]) -> RecentScan:
    """Return what changed below a directory since a time, without other file systems and git's own files."""
    walked = RecentScan([], [], [], 0)
    looked = 0
    device = os.lstat(root).st_dev
    waiting: list[tuple[bytes, bool]] = [(b"", os.lstat(root).st_mtime_ns >= since)]
    while waiting:
        here, written = waiting.pop()
        below = _scan(root, here, since, device, walked, left_out)
        if below is None:
            walked.unread.append(EnvPath(here))
            continue
        directories, count, touched = below
        looked += count
        waiting += directories
        if written and not touched and not _is_new(os.path.join(root, here), since, empty=not count):
            walked.lost.append(EnvPath(here))
    return walked._replace(looked=looked)


def _is_new(place: bytes, since: int, *, empty: bool) -> bool:
    """Return whether a directory was created since; an empty one of unknown age counts as new."""
    born = birth_time_ns(place)
    return empty if born is None else born >= since


def _scan(
    root: bytes, here: bytes, since: int, device: int, walked: RecentScan, left_out: Callable[[bytes], bool]
) -> tuple[list[tuple[bytes, bool]], int, bool] | None:
    """Return the subdirectories of a directory, its number of entries, and whether one changed; None if unreadable."""
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
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                changed = status.st_ctime_ns >= since
                touched = touched or changed
                if entry.name == GIT or not (changed or stat.S_ISDIR(status.st_mode)) or left_out(path):
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if status.st_dev == device:
                        directories.append((path, status.st_mtime_ns >= since))
                else:
                    born = (birth_time_ns(place + b"/" + entry.name) or 0) >= since
                    walked.found.append(RecentEntry(EnvPath(path), status.st_mode, status.st_ctime_ns, born))
    except OSError:
        return None
    return directories, count, touched


# Read the packages of changed directories by the probes of a snapshot.

MAX_PACKAGE_FILE = 8 << 20
NOT_KNOWN = ""
"""The version before a change, which no file shows."""


def changed_packages(root: bytes, found: Iterable[RecentEntry]) -> tuple[FactChange, ...]:
    """Return the packages in directories with changed files of installers, requested ones first.

    The versions before are unknown.
    """
    places: dict[bytes, dict[bytes, RecentEntry]] = {}
    for one in found:
        directory, _, name = one.path.rpartition(b"/")
        places.setdefault(directory, {})[name] = one
    probes = [
        (probe, set(probe.reads) | set(probe.sees))
        for name, probe in file_probes().items()
        if probe.kind == PACKAGES and name != DECLARED
    ]
    changes: dict[tuple[str, str, str], FactChange] = {}
    for directory, changed in places.items():
        for probe, patterns in probes:
            names = [name for name in changed if _is_matched(directory, name, patterns)]
            if names:
                born = all(changed[name].born for name in names)
                for fact in _facts(root, directory, probe, patterns):
                    changes[fact.probe, fact.key, fact.value] = _as_fact_change(fact, born)
    declared = _declared_packages(root, {fact.at for fact in changes.values()})
    return order_by_probe(by_importance(assign_roles((changes[key] for key in sorted(changes)), declared)))


def _declared_packages(root: bytes, directories: Iterable[bytes]) -> list[Fact]:
    """Return what the lists of packages in these directories and above them request."""
    probe = file_probes()[DECLARED]
    above = {place for directory in directories for place in _with_parents(directory)}
    patterns = set(probe.reads) | set(probe.sees)
    return [fact for place in sorted(above) for fact in _facts(root, place, probe, patterns)]


def _with_parents(directory: bytes) -> Iterator[bytes]:
    yield directory
    while directory:
        directory = directory.rpartition(b"/")[0]
        yield directory


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
    except Exception:  # the directory is listed among the changed files anyway
        return


def _files(
    root: bytes, directory: bytes, probe: FileProbe, patterns: Iterable[bytes]
) -> Iterator[tuple[bytes, ProbedFile]]:
    place = os.path.join(root, directory)
    for name in os.listdir(place):
        if _is_matched(directory, name, patterns):
            path = os.path.join(place, name)
            status = os.lstat(path)
            wanted = (
                stat.S_ISREG(status.st_mode)
                and status.st_size <= MAX_PACKAGE_FILE
                and _is_matched(directory, name, probe.reads)
            )
            yield name, ProbedFile(_read(path) if wanted else None, status.st_size, False, b"")


def _read(path: bytes) -> bytes:
    with open(path, "rb", opener=lambda name, flags: open_nofollow(name, flags | os.O_NONBLOCK)) as file:
        return file.read(MAX_PACKAGE_FILE)


def _is_matched(directory: bytes, name: bytes, patterns: Iterable[bytes]) -> bool:
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


def recent_changes(
    repository: Repository, settings: Settings, span: str, environ: Mapping[str, str]
) -> RecentChanges:
    """Return what changed in a working tree within a span such as `1h`."""
    now = datetime.now(LocalZone())
    since = read_time_span(span, now).start.astimezone(now.tzinfo)
    root = os.path.realpath(repository.root)
    return changes_between(root, since, now, repository.git, left_out_of(root, settings.exclude), environ)


def changes_between(
    root: str,
    since: datetime,
    until: datetime,
    git: Git | None,
    left_out: Callable[[bytes], bool],
    environ: Mapping[str, str],
) -> RecentChanges:
    """Return what changed in a directory between two times, by change times and by the logs of machine and user."""
    zone = until.tzinfo
    assert zone is not None
    scan = walk(os.fsencode(root), int(since.timestamp() * 10**6) * 1000, left_out)
    machine = environ.get(MACHINE_ROOT) or "/"
    apt, automatic = read_apt(_texts(machine, APT_LOG, since), since, zone)
    system = read_dpkg(_texts(machine, DPKG_LOG, since), since, zone, automatic)
    commands = sorted([*apt, *_npm_commands(root, since, until, environ)])
    return RecentChanges(
        root,
        since,
        until,
        (*changed_packages(os.fsencode(root), scan.found), *system),
        tuple(sorted(map(_as_change, scan.found), key=lambda change: change.path)),
        {one.path: datetime.fromtimestamp(one.at / 10**9, zone) for one in scan.found},
        tuple(sorted(scan.lost)),
        tuple(sorted(scan.unread)),
        tuple(done._replace(what=mask_text(done.what)) for done in commands),
        tuple(done._replace(what=mask_text(done.what)) for done in _moves_of_head(git, since, until)),
        scan.looked,
    )


def _as_change(found: RecentEntry) -> Change:
    kind = KINDS.get(stat.S_IFMT(found.mode), EntryKind.FILE)
    side = ChangeSide(found.path, kind, stat.S_IMODE(found.mode), None)
    return Change(None if found.born else side, side)


def _texts(machine: str, path: str, since: datetime) -> Iterator[str]:
    """Yield the texts of a log and of its rotated files, oldest first, if they were written to since."""
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
        # The log is unreadable or truncated.
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
