"""What installers and git wrote down: dpkg's and apt's logs, npm's, and the reflog (read as text: pure).

Logs are others' and may hold anything: a line that is none is passed over. Their times are of the clock on the wall,
but npm's, which are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, tzinfo

from git_envhist.history.facts import role_of
from git_envhist.model import FactChange
from git_envhist.model.causing import LogEvent

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
