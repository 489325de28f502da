"""Decide what may come from the repositories within an unsigned snapshot (pure).

git runs what a repository's configuration and hooks name as soon as somebody asks for its status. A directory counts as
a repository if git would take it for one in the end: by its name, or because HEAD, objects and refs are in it, no
matter which of these come and which exist already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath
from git_envhist.restoring import obeyed
from git_envhist.restoring.obeyed import folded
from git_envhist.restoring.outward import is_git

PARTS = frozenset((b"head", b"objects", b"refs"))
BORROWING = frozenset((b"head", b"commondir"))
"""A repository too: the rest of it is elsewhere."""

POINTS_AWAY = "it points to a repository elsewhere"
HOOKS = "hooks are not taken over"
OBEYED = "it commands git"
OTHER_OBEYED = "it commands a version control program"
GIT_LINK = "a link in a repository's own directory"
NO_FILE = "no plain file in a repository's own directory"
SHORT_NAME = "a short name in a repository's own directory"
FORMING = "it would make a repository of what exists there"

_TRUTH = frozenset((b"true", b"false"))
KEPT: Mapping[bytes, frozenset[bytes]] = {
    b"core.repositoryformatversion": frozenset((b"0", b"1")),
    b"core.filemode": _TRUTH,
    b"core.bare": _TRUTH,
    b"core.ignorecase": _TRUTH,
    b"core.precomposeunicode": _TRUTH,
    b"core.symlinks": _TRUTH,
    b"core.logallrefupdates": _TRUTH | {b"always"},
    b"extensions.objectformat": frozenset((b"sha1", b"sha256")),
    b"extensions.refstorage": frozenset((b"files", b"reftable")),
}
"""What says how a repository is stored; nothing of it names a program, a file or a place."""

Directory = tuple[bytes, bytes]
"""A realm and a directory in it."""
Standing = Callable[[bytes, bytes], Collection[bytes]]
"""The names that exist already in a directory of a realm."""


def nothing_exists(realm: bytes, path: bytes) -> Collection[bytes]:
    """Return no name: the place to restore to is new."""
    return ()


class Repositories(NamedTuple):
    """The directories that git would take for repositories after the restore."""

    inside: frozenset[Directory]
    forming: frozenset[Directory]
    """Those that hold something git obeys already, and that only the restore would make repositories."""


def repositories(pairs: Iterable[DirectoryPair], standing: Standing = nothing_exists) -> Repositories:
    """Return the repositories of the side after, joined with what exists at the same places."""
    inside, forming = set(), set()
    for pair in pairs:
        if pair.after is None:
            continue
        key = pair.realm, pair.path
        coming = {folded(name) for name in pair.after.entries}
        here = {folded(name) for name in standing(*key)}
        if is_git(pair.path.rpartition(b"/")[2]):
            inside.add(key)
        elif _is_repository(coming | here):
            inside.add(key)
            if not _is_repository(here) and here & obeyed.OBEYED_AT_TOP:
                forming.add(key)
    return Repositories(frozenset(inside), frozenset(forming))


def _is_repository(names: set[bytes]) -> bool:
    return names >= PARTS or names >= BORROWING


def git_skip_reason(realm: bytes, entry: Entry, found: Repositories) -> str | None:
    """Return why an entry does not come, as far as repositories have to do with it."""
    above, _, name = entry.path.rpartition(b"/")
    if is_git(name) and entry.kind is not EntryKind.DIRECTORY:
        return POINTS_AWAY
    if (realm, above) in found.forming and folded(name) == b"head":
        return FORMING
    around = [
        [folded(part) for part in entry.path[len(one) + 1 if one else 0 :].split(b"/")]
        for one in _around(realm, above, found.inside)
    ]
    named_by_users = any(len(below) > 1 and below[0] in obeyed.NAMED_BY_USERS for below in around)
    has_config = (realm, above) in found.inside
    for below in around:
        why = _why_not_in_git(entry, below, has_config)
        if why is not None and not (named_by_users and why in (HOOKS, OBEYED)):
            return why
    return _why_not_in_others(entry)


def _why_not_in_git(entry: Entry, below: list[bytes], has_config: bool) -> str | None:
    """`below`: the path within a repository; `has_config`: the file next to HEAD is reduced by the caller."""
    if entry.kind is EntryKind.LINK:
        return GIT_LINK
    if entry.kind not in (EntryKind.FILE, EntryKind.DIRECTORY):
        return NO_FILE
    if obeyed.is_short(entry.path.rpartition(b"/")[2]):
        return SHORT_NAME
    in_future = below[0] in obeyed.FUTURE
    if below == [obeyed.HOOKS] or (in_future and below[-1] == obeyed.HOOKS):
        return HOOKS
    if in_future and below[-1] == obeyed.CONFIG and entry.kind is EntryKind.FILE and not has_config:
        return OBEYED
    if below[-1] in obeyed.OBEYED_ANYWHERE or b"/".join(below) in obeyed.OBEYED:
        return OBEYED
    return None


def _why_not_in_others(entry: Entry) -> str | None:
    """The same for Mercurial, jj and their like, whose directories are known by name alone."""
    names = [folded(name) for name in entry.path.split(b"/")]
    for number, name in enumerate(names):
        files = obeyed.OTHER_SYSTEMS.get(name)
        if files is None:
            continue
        if entry.kind is EntryKind.LINK:
            return GIT_LINK
        path = b"/".join(names[number:])
        if path == obeyed.JJ_REPOSITORY and entry.kind is not EntryKind.DIRECTORY:
            return POINTS_AWAY
        if path.partition(b"/")[2] in files:
            return OTHER_OBEYED
    return None


def is_pointer(entry: Entry) -> bool:
    """Return whether the content of a file says where jj finds its git repository."""
    path = b"/".join(folded(name) for name in entry.path.split(b"/"))
    return entry.kind is EntryKind.FILE and (b"/" + path).endswith(b"/" + obeyed.JJ_TARGET)


def is_config(realm: bytes, entry: Entry, found: Repositories) -> bool:
    """Return whether an entry is the configuration of a repository."""
    above, _, name = entry.path.rpartition(b"/")
    is_file = entry.kind is EntryKind.FILE
    return is_file and folded(name) == obeyed.CONFIG and (realm, above) in found.inside


def _around(realm: bytes, above: bytes, inside: frozenset[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield every repository that contains a directory, or is it."""
    while True:
        if (realm, above) in inside:
            yield above
        if not above:
            return
        above = EnvPath(above.rpartition(b"/")[0])


def reduced_config(listed: bytes) -> bytes:
    """Return a configuration with the form of the repository alone, made from the output of `git config --list -z`."""
    told = {b"core.repositoryformatversion": b"0"}
    for item in listed.split(b"\0"):
        key, has_value, value = item.partition(b"\n")
        key, value = key.lower(), value.lower() if has_value else b"true"
        if value in KEPT.get(key, ()):
            told[key] = value
    lines = []
    for section in (b"core", b"extensions"):
        found = [key for key in KEPT if key in told and key.startswith(section + b".")]
        if found:
            lines.append(b"[%b]\n" % section)
            lines += [b"\t%b = %b\n" % (key.partition(b".")[2], told[key]) for key in found]
    return b"".join(lines)
