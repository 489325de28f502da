"""The repositories within somebody else's snapshot (pure): what of each git would obey, and what of it may come.

git runs what a repository's configuration and hooks name as soon as anybody asks for its status. A directory is taken
for a repository where git would: called `.git`, or with a HEAD, objects and refs in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from git_envhist.model import Entry, EntryKind, EnvPath, Pair
from git_envhist.restoring.outward import is_git

PARTS = frozenset((b"head", b"objects", b"refs"))
BORROWING = frozenset((b"head", b"commondir"))
"""A repository too: the rest of it stands elsewhere."""
CONFIG = b"config"

POINTS_AWAY = "it points to a repository elsewhere"
HOOKS = "hooks are not taken over"
OBEYED = "it commands git"
GIT_LINK = "a link in a repository's own directory"

OBEYED_ANYWHERE = frozenset((b"config.worktree", b"commondir"))
NAMED_BY_USERS = (b"refs/", b"logs/")
OBEYED_FILES = frozenset(
    (
        *(b"info/attributes", b"rebase-merge", b"rebase-apply", b"sequencer"),
        *(b"objects/info/alternates", b"objects/info/http-alternates"),
    )
)

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


def repositories(pairs: Iterable[Pair]) -> frozenset[tuple[bytes, bytes]]:
    """(realm, path) of every directory of the side after that git would take for a repository."""
    found = set()
    for pair in pairs:
        if pair.after is None:
            continue
        names = {name.lower() for name in pair.after.entries}
        if is_git(pair.path.rpartition(b"/")[2]) or names >= PARTS or names >= BORROWING:
            found.add((pair.realm, pair.path))
    return frozenset(found)


def why_not_brought(realm: bytes, entry: Entry, inside: frozenset[tuple[bytes, bytes]]) -> str | None:
    """Why an entry does not come, as far as repositories have to do with it."""
    above, _, name = entry.path.rpartition(b"/")
    if is_git(name) and entry.kind is not EntryKind.DIRECTORY:
        return POINTS_AWAY
    for repository in _around(realm, above, inside):
        below = entry.path[len(repository) + 1 if repository else 0 :].lower()
        if entry.kind is EntryKind.LINK:
            return GIT_LINK
        if below == b"hooks" and entry.kind is EntryKind.DIRECTORY:
            return HOOKS
        if below in OBEYED_FILES or (
            name.lower() in OBEYED_ANYWHERE and not below.startswith(NAMED_BY_USERS)
        ):
            return OBEYED
    return None


def is_config(realm: bytes, entry: Entry, inside: frozenset[tuple[bytes, bytes]]) -> bool:
    """Whether an entry is the configuration of a repository."""
    above, _, name = entry.path.rpartition(b"/")
    return entry.kind is EntryKind.FILE and name.lower() == CONFIG and (realm, above) in inside


def _around(realm: bytes, above: bytes, inside: frozenset[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Every repository that a directory lies in, or is."""
    while True:
        if (realm, above) in inside:
            yield above
        if not above:
            return
        above = EnvPath(above.rpartition(b"/")[0])


def reduced_config(listed: bytes) -> bytes:
    """A configuration with nothing but the form of the repository, from what `git config --list -z` says of one."""
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
