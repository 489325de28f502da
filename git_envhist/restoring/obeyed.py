"""Names that version control programs obey, as any file system may spell them (pure).

A file system that ignores case, HFS+ and NTFS each take several spellings for one name. git protects `.git` in all of
them on every system; the same is done here for everything inside a repository.
"""

from __future__ import annotations

import unicodedata

from git_envhist.values import pattern

HOOKS = b"hooks"
CONFIG = b"config"
NAMED_BY_USERS = frozenset((b"refs", b"logs"))
"""Directories of a repository in which users choose the names."""
FUTURE = frozenset((b"modules", b"worktrees"))
"""Directories of a repository in which git makes further ones, some of them later."""
OBEYED_ANYWHERE = frozenset((b"config.worktree", b"commondir"))
OBEYED = frozenset(
    (
        *(b"info/attributes", b"rebase-merge", b"rebase-apply", b"sequencer", b"remotes", b"branches"),
        *(b"objects/info/alternates", b"objects/info/http-alternates"),
        # Approved commands, hook scripts and keys of git-envhist itself.
        b"envhist",
    )
)
OBEYED_AT_TOP = frozenset((HOOKS, CONFIG, *OBEYED_ANYWHERE, *(path.partition(b"/")[0] for path in OBEYED)))

OTHER_SYSTEMS = {
    b".hg": frozenset((b"hgrc", b"hgrc-not-shared", b"sharedpath")),
    b".sl": frozenset((b"config", b"hgrc", b"sharedpath")),
    b".jj": frozenset(
        (
            *(b"repo/config.toml", b"repo/config-id", b"workspace-config.toml", b"workspace-config-id"),
            b"config.toml",
        )
    ),
    b".bzr": frozenset((b"branch/branch.conf", b"branch/location", b"checkout/views")),
    b".pijul": frozenset((b"config", b"config.toml")),
    b"_darcs": frozenset((b"prefs/defaults",)),
}
"""Directories of other systems, and the files in each that name programs or other places."""
JJ_REPOSITORY = b".jj/repo"
"""A directory; a file of this name holds the path of a repository elsewhere."""
JJ_TARGET = b".jj/repo/store/git_target"
JJ_TARGETS = frozenset((b"git", b"../../../.git"))
"""The places within its own directory that jj gives for the git repository."""

_IGNORED = pattern(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
_SHORT = pattern(rb"[^~]{1,6}~[0-9]{1,5}(?:\.[^.]{0,3})?\Z")


def folded(name: bytes) -> bytes:
    """Return one spelling for all names that some file system takes for the same."""
    name = _IGNORED.sub(b"", name.partition(b"\\")[0].partition(b":")[0]).rstrip(b" .")
    if name.isascii():
        name = name.lower()
    else:
        text = name.decode("utf-8", "surrogateescape")
        folded_text = unicodedata.normalize("NFKC", text.casefold()).casefold()
        name = folded_text.encode("utf-8", "surrogateescape")
    return _LONG.get(name, name)


def is_short(name: bytes) -> bool:
    """Whether a name has the form of those that FAT and NTFS give to files with longer names."""
    return _SHORT.match(name) is not None


_LONG = {system[1:] + b"~1": system for system in OTHER_SYSTEMS if system.startswith(b".")}
_LONG |= {b"common~%d" % number: b"commondir" for number in range(1, 5)}
