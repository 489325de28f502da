"""Determine what belongs to the environment: roots, mount points, patterns, encrypted paths.

The scope is computed once before the walk. It also contains the digests that decide whether the stat cache of
an earlier capture may be used, and the functions that build the tree entries of a directory from its record.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from git_envhist.config import Settings
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass
from git_envhist.model import MissingReason
from git_envhist.paths import DOT_GIT, ROOT_PREFIX, display_path, join
from git_envhist.platform import SYSTEM, Mount, list_mounts, open_file_only
from git_envhist.worktree.path_patterns import FILE_NAME, path_matcher, split_lines, usable

# Mount points are read from the kernel's table: stat on a mount of an unreachable network can hang.


def read_mounts(table: str = "/proc/self/mountinfo") -> tuple[bytes, ...] | None:
    """Return all visible mount points, or None if the system has no mountinfo."""
    if not SYSTEM.proc:
        return None
    try:
        return visible_points(list_mounts(table))
    except (OSError, IndexError, ValueError):
        return None


def visible_points(mounts: list[Mount]) -> tuple[bytes, ...]:
    """Return the mount points that no later mount hides."""
    by_number = {mount.number: mount for mount in mounts}
    points_by_parent: dict[bytes, list[bytes]] = {}
    for mount in mounts:
        points_by_parent.setdefault(mount.parent, []).append(mount.point)
    return tuple(mount.point for mount in mounts if not _is_hidden(mount, by_number, points_by_parent))


def _is_hidden(
    mount: Mount, by_number: dict[bytes, Mount], points_by_parent: dict[bytes, list[bytes]]
) -> bool:
    seen: set[bytes] = set()
    current: Mount | None = mount
    while current is not None and current.number not in seen:
        seen.add(current.number)
        # A mount on the same parent at a directory above hides this one.
        if any(_is_below(current.point, point) for point in points_by_parent[current.parent]):
            return True
        current = by_number.get(current.parent)
    return False


def _is_below(point: bytes, other: bytes) -> bool:
    return point != other and point.startswith(other.rstrip(b"/") + b"/")


def is_stored_outside_tree(path: bytes) -> bool:
    """Return whether a directory is the `.git` of a nested repository or the top of an additional root."""
    if path.startswith(ROOT_PREFIX):
        return b"/" not in path
    return path.endswith(b"/" + DOT_GIT) and DOT_GIT not in path.split(b"/")[:-1]


def is_inside_git_directory(path: bytes) -> bool:
    """Return whether a directory is, or lies in, the `.git` of a nested repository."""
    return not path.startswith(ROOT_PREFIX) and DOT_GIT in path.split(b"/")


BOUNDARY = "worktree"
RULES_VERSION = 3
"""Version of the built-in rules for secrets; raising it makes the next capture read all files again."""


@dataclass(frozen=True, slots=True)
class CaptureScope:
    """Extent of an environment and the rules that apply in it."""

    bases: dict[bytes, bytes]
    """Name of the root (empty: the working tree) -> its directory."""
    pruned: dict[bytes, str | None]
    known: dict[tuple[int, int], str | None]
    """Directories that are never entered whatever their path is: (device, inode) -> reason."""
    mounts_known: bool
    ignore: tuple[str, ...]
    exclude: tuple[str, ...]
    fingerprint: tuple[str, ...]
    encrypted: tuple[bytes, ...]
    naming: str
    keeping: str
    warnings: tuple[str, ...] = ()
    crossed: tuple[bytes, ...] = ()
    """Mount points in the environment that are captured (`envhist.crossMounts`), as displayed paths."""

    @property
    def mount_points(self) -> tuple[bytes, ...]:
        """Return the mount points in the working tree that must not be touched."""
        return tuple(path for path, why in self.pruned.items() if why == MissingReason.MOUNT.value)


def read_scope(
    repository: Repository,
    settings: Settings,
    key_id: str | None,
    keys: str,
    histories: Collection[str] = (),
) -> CaptureScope:
    """Return the scope. `keys` is the directory of keys, `histories` are directories of other histories."""
    private = (keys, *histories)
    bases, warnings = bases_of(repository, settings)
    mounts = read_mounts()
    pruned = _prune(repository, bases, mounts or (), private)
    crossed = _take_mounts(pruned) if settings.cross_mounts else ()
    # A bad pattern raises here: a capture must not store a secret unsealed because its pattern was ignored.
    path_matcher(list(settings.secret))
    lines, unread = ((), []) if settings.named_only else _read_ignore_file(repository.root)
    ignore, bad = usable(lines)
    exclude, also_bad = usable(settings.exclude)
    fingerprint, bad_too = usable(settings.fingerprint)
    warnings += [*unread, *bad, *also_bad, *bad_too]
    encrypted = encrypted_paths(repository, settings)
    naming = (ignore, exclude, settings.cross_mounts, sorted(bases.items()), sorted(pruned.items()))
    keeping = (RULES_VERSION, settings.secret, fingerprint, settings.big_file, key_id, encrypted)
    return CaptureScope(
        bases=bases,
        pruned=pruned,
        known=_identities_not_entered(repository, private),
        mounts_known=mounts is not None,
        ignore=ignore,
        exclude=exclude,
        fingerprint=fingerprint,
        encrypted=encrypted,
        naming=_digest(naming),
        keeping=_digest((repository.object_format, keeping)),
        warnings=tuple(warnings),
        crossed=crossed,
    )


def bases_of(repository: Repository, settings: Settings) -> tuple[dict[bytes, bytes], list[str]]:
    """Return the directories of all roots by name, and warnings about invalid roots."""
    bases = {b"": os.fsencode(repository.root)}
    warnings = []
    for name, directory in settings.roots:
        path = os.path.join(repository.root, os.path.expanduser(directory))
        if not name or "/" in name:
            warnings.append(f"envhist.root.{name} is not a valid root name: use one word without a slash")
        elif os.path.isdir(path):
            bases[os.fsencode(name)] = os.fsencode(path)
        else:
            warnings.append(f"envhist.root.{name} is not a directory: '{directory}'")
    return bases, warnings


def _prune(
    repository: Repository, bases: Mapping[bytes, bytes], mounts: Iterable[bytes], private: Collection[str]
) -> dict[bytes, str | None]:
    """Return the paths not entered: our own directories, other working trees, mount points."""
    pruned: dict[bytes, str | None] = {}
    for root, base in bases.items():
        top = ROOT_PREFIX + root if root else b""
        real = os.path.realpath(base)
        for directory in mounts:
            _add(pruned, top, real, directory, MissingReason.MOUNT.value)
        for tree in _other_working_trees(repository):
            _add(pruned, top, real, tree, BOUNDARY)
        # The key directory may lie in the working tree or in a root (a home directory); keys are never
        # captured.
        for own in _our_directories(repository, private):
            _add(pruned, top, real, os.path.realpath(own), None)
    return pruned


def _take_mounts(pruned: dict[bytes, str | None]) -> tuple[bytes, ...]:
    """Remove mount points from the pruned paths, so that they are entered, and return them."""
    found = [path for path, why in pruned.items() if why == MissingReason.MOUNT.value]
    for path in found:
        del pruned[path]
    return tuple(map(display_path, found))


def _identities_not_entered(
    repository: Repository, private: Collection[str]
) -> dict[tuple[int, int], str | None]:
    """Return our directories and other working trees by (device, inode), in case a bind mount or another case
    of letters leads to them."""
    known: dict[tuple[int, int], str | None] = {}
    root = os.path.realpath(os.fsencode(repository.root)).lower() + b"/"
    for tree in _other_working_trees(repository):
        # Working trees elsewhere are not examined: their disk may not respond.
        if tree.lower().startswith(root):
            _add_identity(known, tree, BOUNDARY)
    for own in _our_directories(repository, private):
        _add_identity(known, own, None)
    return known


def _add_identity(known: dict[tuple[int, int], str | None], directory: bytes, why: str | None) -> None:
    with suppress(OSError):
        seen = os.stat(directory)
        known[seen.st_dev, seen.st_ino] = why


def _our_directories(repository: Repository, private: Collection[str]) -> set[bytes]:
    return {os.fsencode(own) for own in (repository.git_dir, repository.common_dir, *private)}


def _add(pruned: dict[bytes, str | None], top: bytes, base: bytes, directory: bytes, why: str | None) -> None:
    prefix = base.rstrip(b"/") + b"/"
    if directory.startswith(prefix) and len(directory) > len(prefix):
        pruned[join(top, directory[len(prefix) :])] = why


def _other_working_trees(repository: Repository) -> list[bytes]:
    common = os.fsencode(repository.common_dir)
    found = []
    if os.path.basename(common) == b".git":
        found.append(os.path.dirname(common))
    try:
        names = os.listdir(common + b"/worktrees")
    except OSError:
        names = []
    for name in names:
        try:
            with open(common + b"/worktrees/" + name + b"/gitdir", "rb", opener=open_file_only) as file:
                directory = file.read().rstrip(b"\n")
        except OSError:
            continue
        found.append(os.path.dirname(os.path.realpath(os.path.join(common, b"worktrees", name, directory))))
    own = os.path.realpath(os.fsencode(repository.root))
    return [tree for tree in found if tree != own]


def _read_ignore_file(root: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the lines of the ignore file, and a warning if it exists and cannot be read."""
    path = os.path.join(os.fsencode(root), FILE_NAME)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return split_lines(file.read(1 << 20).decode("utf-8", "surrogateescape")), []
    except FileNotFoundError:
        return (), []
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        return (), [f"'{os.fsdecode(FILE_NAME)}' cannot be read and is ignored: {reason}"]


def encrypted_paths(repository: Repository, settings: Settings) -> tuple[bytes, ...]:
    """Return the files that a `filter` attribute encrypts: in the working tree they are not encrypted."""
    drivers = [name for name in settings.filters if name != "lfs"]
    wanted = {os.fsencode(name) for name in drivers if _encrypts(repository, settings, name)}
    if not wanted:
        return ()
    git = repository.git
    # Without the index every file is listed, and a damaged index cannot hide an encrypted file.
    paths = git.run("ls-files", "-z", "--others", environment=git.no_index)
    asked = git.try_run("check-attr", "-z", "--stdin", "filter", stdin=paths)
    found = asked.out
    if asked.status != 0:
        found = git.run("check-attr", "-z", "--stdin", "filter", stdin=paths, environment=git.no_index)
    fields = found.split(b"\0")
    rows = zip(fields[0::3], fields[2::3], strict=False)
    return tuple(sorted(path for path, value in rows if value in wanted))


def _encrypts(repository: Repository, settings: Settings, driver: str) -> bool:
    words = ("crypt", "secret", "seal", "vault", "sops", "gpg", "cipher")
    commands = repository.git.ask(
        "config", "--get-regexp", rf"^filter\.{re.escape(driver)}\.(clean|process)$"
    ).out
    text = driver.lower() + os.fsdecode(commands).lower()
    return any(word in text for word in words) or re.search(r"\bage\b", text) is not None


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()
