"""Names that a file system cannot hold, or not side by side: told before anything is changed.

Where `Readme` and `README` are one name, or two spellings of `é`, the second of two files would take the place of the
first. A snapshot from elsewhere may hold both. What a target is like is asked of the names that stand there already;
nothing is written for the question but into a new directory that is to be filled.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.errors import Refused
from git_envhist.model import EnvPath, PlanAction, RestorePlan, shown_path
from git_envhist.restore.hands import DiskCalls
from git_envhist.restore.looks import look
from git_envhist.store.quoting import show
from git_envhist.system import DIRECTORY, SYSTEM

TOLD = 10
USUAL = 255
"""The longest name of a file on nearly every file system, in bytes."""
MOUNTINFO = "/proc/self/mountinfo"
FOREIGN_TYPES = frozenset((b"vfat", b"msdos", b"exfat", b"drvfs"))
"""File systems made for another system, whose rules hold whoever mounts them."""
WINDOWS_OPTIONS = frozenset((b"windows_names", b"aname=drvfs"))
FORBIDDEN = re.compile(rb'[\x01-\x1f"*:<>?|\\]|[. ]\Z')
DEVICE = re.compile(rb"(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\.|\Z)", re.IGNORECASE)

Change = Callable[[str], str]
Directory = tuple[bytes, EnvPath]
"""A realm and a directory in it."""


class NameRules(NamedTuple):
    """How a file system takes names."""

    folds_case: bool = False
    folds_form: bool = False
    longest: int | None = None
    reserves: bool = False

    @property
    def is_narrow(self) -> bool:
        """Whether it takes fewer names for different, or for names at all, than the file systems of this system do."""
        is_short = self.longest is not None and self.longest < USUAL
        return self.folds_case or self.folds_form or self.reserves or is_short

    def key(self, name: bytes) -> str:
        """Names with one key are one name."""
        text = os.fsdecode(name)
        if text.isascii():
            return text.lower() if self.folds_case else text
        if self.folds_case:
            text = text.casefold()
        return unicodedata.normalize("NFD", text) if self.folds_form else text


def refuse_names(plan: RestorePlan, bases: Mapping[bytes, bytes], *, empty: bool = False) -> None:
    """`Refused` where the plan brings names that their place cannot hold; `empty`: nothing stands at the place yet."""
    coming = arrivals(plan)
    found: list[str] = []
    for realm in sorted({realm for realm, _ in coming}):
        if realm in bases:
            manner = manner_of(bases[realm], empty=empty)
            found += _problems(realm, coming, plan, manner, bases[realm])
    if found:
        more = f"; and {len(found) - TOLD:,} more" if len(found) > TOLD else ""
        raise Refused(
            f"this file system cannot hold all names of that moment: {'; '.join(found[:TOLD])}{more}",
            hint="leave one of each out: git envrestore <rev> -- . ':!<path>'; or restore it elsewhere, with --to",
        )


def arrivals(plan: RestorePlan) -> dict[Directory, list[bytes]]:
    """The names that a plan brings where none stood, by the directory that they are to stand in."""
    found: dict[Directory, list[bytes]] = defaultdict(list)
    for step in plan.steps:
        comes = [] if step.after is None or step.before is not None else [step.path]
        for path in (*comes, *(entry.path for entry in step.below)):
            above, _, name = path.rpartition(b"/")
            found[step.realm, EnvPath(above)].append(name)
    return found


def clashes(
    names: Iterable[bytes], standing: Iterable[bytes], manner: NameRules
) -> Iterator[tuple[bytes, bytes]]:
    """(name, name) of all that cannot stand side by side."""
    taken: dict[str, bytes] = {manner.key(name): name for name in standing}
    for name in sorted(names):
        other = taken.setdefault(manner.key(name), name)
        if other != name:
            yield other, name


def why_not(name: bytes, manner: NameRules) -> str | None:
    """Why a name cannot be had at all."""
    if manner.longest is not None and len(name) > manner.longest:
        return f"is longer than {manner.longest} bytes"
    if manner.reserves and FORBIDDEN.search(name):
        return "has a character that is not allowed there"
    if manner.reserves and DEVICE.match(name):
        return "is a device there"
    return None


def manner_of(base: bytes, *, empty: bool = False) -> NameRules:
    """How the file system of a directory takes names."""
    longest = os.pathconf(base, "PC_NAME_MAX")
    return NameRules(
        not SYSTEM.case or _folds(base, str.swapcase, "envhist", empty),
        not SYSTEM.forms or _folds(base, _other_form, "envhist-\u00e9", empty),
        longest if longest > 0 else None,
        not SYSTEM.names or _reserves(base),
    )


def _problems(
    realm: bytes, coming: Mapping[Directory, list[bytes]], plan: RestorePlan, manner: NameRules, base: bytes
) -> Iterator[str]:
    removed = {step.path for step in plan.steps if step.realm == realm and step.action is PlanAction.REMOVE}
    folds = manner.folds_case or manner.folds_form
    for (where, directory), names in coming.items():
        if where != realm:
            continue
        for name in names:
            why = why_not(name, manner)
            if why is not None:
                yield f"{_shown(realm, directory, name)} {why}"
        if folds:
            stays = [name for name in _listed(base, directory) if _join(directory, name) not in removed]
            for one, other in clashes(names, stays, manner):
                yield f"{_shown(realm, directory, one)} and {_shown(realm, directory, other)} are one name there"


def _listed(base: bytes, directory: EnvPath) -> list[bytes]:
    try:
        return os.listdir(os.path.join(base, directory) if directory else base)
    except OSError:
        return []  # it is to come itself


def _folds(base: bytes, change: Change, probe: str, empty: bool) -> bool:
    """Whether a name and its other spelling are one, as far as what stands there can tell."""
    listed = set(os.listdir(base))
    for name in listed:
        other = os.fsencode(change(os.fsdecode(name)))
        if other != name and other not in listed:
            return _is_one(base + b"/" + name, base + b"/" + other)
    return empty and _folds_anew(base, os.fsencode(probe), os.fsencode(change(probe)))


def _is_one(path: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _folds_anew(base: bytes, name: bytes, other: bytes) -> bool:
    """The same, tried with a file of ours in a directory that is still empty."""
    from git_envhist.restore.anew import private_directory  # loaded late: hardly any file system folds names

    hands = DiskCalls()
    top = os.open(base, DIRECTORY)
    try:
        # What a kill left there is thrown away, and nobody who is at work there is disturbed.
        with private_directory(top, hands) as private:
            os.close(hands.create(private, name))
            return look(private, other) is not None
    finally:
        os.close(top)


def _reserves(base: bytes) -> bool:
    """Whether the names that Windows keeps for itself cannot be had there."""
    if not SYSTEM.proc:
        return False
    device = os.stat(base).st_dev
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open(MOUNTINFO, "rb") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    for fields in lines:
        if len(fields) > 5 and fields[2] == wanted and b"-" in fields:
            kind, _, *options = fields[fields.index(b"-") + 1 :]
            words = set(re.split(rb"[,;]", b",".join(options)))
            if kind in FOREIGN_TYPES or not words.isdisjoint(WINDOWS_OPTIONS):
                return True
    return False


def _other_form(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    return unicodedata.normalize("NFD", text) if composed == text else composed


def _join(directory: bytes, name: bytes) -> EnvPath:
    return EnvPath(directory + b"/" + name if directory else name)


def _shown(realm: bytes, directory: bytes, name: bytes) -> str:
    return f"'{show(shown_path(realm, _join(directory, name)))}'"
