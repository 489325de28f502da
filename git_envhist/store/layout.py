"""Where things stand in a snapshot's tree besides the environment's own entries (pure).

Everything that is not an entry of the working tree stands under the one reserved name at the top. Two of its
directories hold entries again: the `.git` of nested repositories, and further roots. Each such place is a *realm*:
paths below it are told from its own top on.
"""

from __future__ import annotations

from functools import lru_cache

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.store.names import (
    RESERVED,
    must_escape,
    stored_name,
    stored_path,
    suspicious,
    true_name,
    true_path,
)
from git_envhist.store.quoting import show
from git_envhist.values import pattern

__all__ = [
    "ATTACHMENTS",
    "DOTGIT",
    "FACTS",
    "GIT_CHANGED",
    "MANIFEST",
    "MISSING",
    "PIECES",
    "RESERVED",
    "ROOTS",
    "RULES",
    "SERVICES",
    "STAGED",
    "UNSTABLE",
    "dotgit_directory",
    "root_directory",
    "split_realm",
    "stored_below",
    "stored_places",
]

# Names directly below RESERVED.
MANIFEST = b"manifest"
MISSING = b"missing"
UNSTABLE = b"unstable"
FACTS = b"facts"
STAGED = b"staged"
PIECES = b"pieces"
ROOTS = b"roots"
DOTGIT = b"dotgit"
ATTACHMENTS = b"attachments"
GIT_CHANGED = b"git-changed"
RULES = b"rules"
SERVICES = b"services"

LONGEST_FLAT = 200
_FLAT = pattern(rb"(?!\.\.?\Z)[^/\\\0]+\Z")
_DIGEST = pattern(rb"[0-9a-f]{40}\Z")


def dotgit_directory(path: EnvPath) -> bytes:
    """The directory in the tree that holds the `.git` of the nested repository at a path."""
    return b"/".join((RESERVED, DOTGIT, _flat(path)))


def root_directory(name: bytes) -> bytes:
    """The directory in the tree that holds the further root of this name."""
    return b"/".join((RESERVED, ROOTS, _flat(name)))


def stored_below(realm: bytes, path: EnvPath) -> bytes:
    """A directory's path in the tree; `realm` is b"" or what `dotgit_directory` or `root_directory` gave."""
    if not realm:
        return stored_path(path)
    return b"/".join([realm, *[stored_name(name) for name in path.split(b"/") if name]])


@lru_cache(256)
def split_realm(stored_directory: bytes) -> tuple[bytes, EnvPath]:
    """The realm that a directory of the tree belongs to, and its true path from the top of that realm on."""
    names = stored_directory.split(b"/")
    # Most directories are stored as they are called, which is quickly seen.
    if all(names) and b"\0" not in stored_directory and not suspicious(stored_directory.replace(b"/", b"\0")):
        return b"", EnvPath(stored_directory)
    if names[0] != RESERVED:
        realm, path = b"", true_path(stored_directory)
    elif len(names) > 2 and names[1] in (DOTGIT, ROOTS) and _FLAT.match(names[2]):
        realm, path = b"/".join(names[:3]), EnvPath(b"/".join([true_name(name) for name in names[3:]]))
    else:
        raise Damaged(f"no entries are stored in '{show(stored_directory)}'")
    if stored_below(realm, path) != stored_directory:
        raise Damaged(f"a directory is not spelled as names are stored: '{show(stored_directory)}'")
    return realm, path


def stored_places(path: EnvPath) -> tuple[tuple[bytes, bytes], ...]:
    """Where the tree may hold a path as people spell it, (directory, true name), the likeliest first."""
    root, further, below_root = path.partition(b"://")
    nested, inside, below_git = path.partition(b"/.git/")
    if further and root:
        realms = [(root_directory(root), below_root)]
    elif inside and nested:
        # What looks like a file of a nested repository may be one of a directory that is only called `.git`.
        realms = [(dotgit_directory(EnvPath(nested)), below_git), (b"", path)]
    else:
        realms = [(b"", path)]
    return tuple(_place_in(realm, below) for realm, below in realms if is_path(below))


def _place_in(realm: bytes, below: bytes) -> tuple[bytes, bytes]:
    directory, _, name = below.rpartition(b"/")
    return stored_below(realm, EnvPath(directory)) if directory else realm, name


def is_path(path: bytes) -> bool:
    """Whether entries can stand at such a path."""
    return not {b"", b".", b".."}.intersection(path.split(b"/"))


def _flat(path: bytes) -> bytes:
    # One component for a whole path: a path that begins another must not become a directory around it.
    flat = path.replace(b"%", b"%25").replace(b"/", b"%2f").replace(b"\\", b"%5c")
    if not flat:
        raise ValueError("the top is no nested repository, and a root has a name")
    if len(flat) > LONGEST_FLAT:
        import hashlib  # loaded late: a list of paths hashes nothing

        return hashlib.sha256(path).hexdigest()[:40].encode("ascii")
    # A path that reads like a digest must not take the place of a longer one.
    if flat in (b".", b"..") or must_escape(flat) or _DIGEST.match(flat):
        return b"%%%02x" % flat[0] + flat[1:]
    return flat
