"""What belongs to the environment, and what is left out: asked once, before anything is looked at."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from git_envhist.capture.manifest_shards import stored_directory
from git_envhist.config import Settings
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass
from git_envhist.model import MissingReason
from git_envhist.paths import DOT_GIT, ROOT_PREFIX, display_path, join
from git_envhist.platform import SYSTEM, Mount, list_mounts, open_file_only
from git_envhist.snapshots.layout import DIRECTORY, TreeEntry, leaf_entries
from git_envhist.worktree.ignore import FILE_NAME, path_matcher, split_lines, usable
from git_envhist.worktree.stat_cache import BELOW, DirectoryRecord

# Which mount points there are to be met: asked of the kernel, so that none of them has to be touched to be known.
#
# A mount may hang (a network that is gone, an automounter) as soon as anybody asks for its stat.


def read_mounts(table: str = "/proc/self/mountinfo") -> tuple[bytes, ...] | None:
    """Every mount point that a path of this process leads to, or None where the system does not tell."""
    if not SYSTEM.proc:
        return None
    try:
        return visible_points(list_mounts(table))
    except (OSError, IndexError, ValueError):
        return None


def visible_points(mounts: list[Mount]) -> tuple[bytes, ...]:
    """The points that are not below something mounted over them later: such a path is an ordinary one again."""
    by_number = {mount.number: mount for mount in mounts}
    beside: dict[bytes, list[bytes]] = {}
    for mount in mounts:
        beside.setdefault(mount.parent, []).append(mount.point)
    return tuple(mount.point for mount in mounts if not _is_hidden(mount, by_number, beside))


def _is_hidden(mount: Mount, by_number: dict[bytes, Mount], beside: dict[bytes, list[bytes]]) -> bool:
    seen: set[bytes] = set()
    current: Mount | None = mount
    while current is not None and current.number not in seen:
        seen.add(current.number)
        # Mounted on the same mount and further up: what is below can only have been there before.
        if any(_is_below(current.point, point) for point in beside[current.parent]):
            return True
        current = by_number.get(current.parent)
    return False


def _is_below(point: bytes, other: bytes) -> bool:
    return point != other and point.startswith(other.rstrip(b"/") + b"/")


# The entries of a directory as its tree holds them.


def entries_of(record: DirectoryRecord, width: int) -> list[TreeEntry]:
    """What the tree of a directory holds."""
    ids = [record.ids[at : at + width] for at in range(0, len(record.ids), width)]
    entries = leaf_entries(record.names, record.modes, ids, top=not record.path)
    for number, name in enumerate(record.subdirectories):
        entries += subtree(record.path, name, record.below[number * BELOW :][:width])
    return entries


def leaf_entry(record: DirectoryRecord, index: int, mode: int, oid: bytes) -> list[TreeEntry]:
    """The entry of a file or link, if there is one."""
    return leaf_entries([record.names[index]], [mode], [oid], top=not record.path)


def subtree(directory: bytes, name: bytes, tree: bytes) -> list[TreeEntry]:
    """The entry of a subdirectory, if there is one."""
    path = join(directory, name)
    if not any(tree) or is_stored_outside_tree(path):
        return []
    return [(stored_directory(path).rpartition(b"/")[2], DIRECTORY, tree)]


def is_stored_outside_tree(path: bytes) -> bool:
    """Whether a directory is the `.git` of a nested repository, or the top of a further root."""
    if path.startswith(ROOT_PREFIX):
        return b"/" not in path
    return path.endswith(b"/" + DOT_GIT) and DOT_GIT not in path.split(b"/")[:-1]


def is_inside_git_directory(path: bytes) -> bool:
    """Whether a directory is the `.git` of a nested repository, or stands in one."""
    return not path.startswith(ROOT_PREFIX) and DOT_GIT in path.split(b"/")


BOUNDARY = "worktree"
RULES_VERSION = 3
"""Raised where the built-in rules of what is secret change: what was kept under others is looked at again."""


@dataclass(frozen=True, slots=True)
class CaptureScope:
    """The extent of an environment and the rules that hold in it."""

    bases: dict[bytes, bytes]
    """The root's name (empty: the working tree) -> where its top is."""
    pruned: dict[bytes, str | None]
    known: dict[tuple[int, int], str | None]
    """What else is not entered, under whatever path and spelling it is met: (device, number) -> why."""
    mounts_known: bool
    ignore: tuple[str, ...]
    exclude: tuple[str, ...]
    fingerprint: tuple[str, ...]
    encrypted: tuple[bytes, ...]
    naming: str
    keeping: str
    warnings: tuple[str, ...] = ()
    crossed: tuple[bytes, ...] = ()
    """What is mounted in the environment and captured all the same, by the paths that people see."""

    @property
    def mount_points(self) -> tuple[bytes, ...]:
        """What is mounted in the working tree and not to be touched."""
        return tuple(path for path, why in self.pruned.items() if why == MissingReason.MOUNT.value)


def read_scope(
    repository: Repository,
    settings: Settings,
    key_id: str | None,
    keys: str,
    histories: Collection[str] = (),
) -> CaptureScope:
    """Look around; `keys` is where the keys lie outside the git directory, `histories` where other histories do."""
    apart = (keys, *histories)
    bases, warnings = bases_of(repository, settings)
    mounts = read_mounts()
    pruned = _prune(repository, bases, mounts or (), apart)
    crossed = _crossed(pruned) if settings.cross_mounts else ()
    # One that is none could mean anything: rather no capture than a secret in the clear.
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
        bases,
        pruned,
        _know(repository, apart),
        mounts is not None,
        ignore,
        exclude,
        fingerprint,
        encrypted,
        _digest(naming),
        _digest((repository.object_format, keeping)),
        tuple(warnings),
        crossed,
    )


def bases_of(repository: Repository, settings: Settings) -> tuple[dict[bytes, bytes], list[str]]:
    """The tops of the environment, by the names of their roots; what is wrong with the configured ones."""
    bases = {b"": os.fsencode(repository.root)}
    warnings = []
    for name, place in settings.roots:
        path = os.path.join(repository.root, os.path.expanduser(place))
        if not name or "/" in name:
            warnings.append(f"envhist.root.{name} is no name for a root: one word without a slash")
        elif os.path.isdir(path):
            bases[os.fsencode(name)] = os.fsencode(path)
        else:
            warnings.append(f"envhist.root.{name} is not a directory: '{place}'")
    return bases, warnings


def _prune(
    repository: Repository, bases: Mapping[bytes, bytes], mounts: Iterable[bytes], apart: Collection[str]
) -> dict[bytes, str | None]:
    """What is not entered: ours, other working trees of the same repository, what is mounted inside."""
    pruned: dict[bytes, str | None] = {}
    for root, base in bases.items():
        top = ROOT_PREFIX + root if root else b""
        real = os.path.realpath(base)
        for place in mounts:
            _add(pruned, top, real, place, MissingReason.MOUNT.value)
        for tree in _other_working_trees(repository):
            _add(pruned, top, real, tree, BOUNDARY)
        # A home may be a root, or stand in the working tree: what opens every sealed file is never a part of it.
        for ours in _our_directories(repository, apart):
            _add(pruned, top, real, os.path.realpath(ours), None)
    return pruned


def _crossed(pruned: dict[bytes, str | None]) -> tuple[bytes, ...]:
    """Take out what is mounted: it is entered like anything else."""
    found = [path for path, why in pruned.items() if why == MissingReason.MOUNT.value]
    for path in found:
        del pruned[path]
    return tuple(map(display_path, found))


def _know(repository: Repository, apart: Collection[str]) -> dict[tuple[int, int], str | None]:
    """Ours and other working trees by their numbers: a mount may show them once more, another spelling name them."""
    known: dict[tuple[int, int], str | None] = {}
    root = os.path.realpath(os.fsencode(repository.root)).lower() + b"/"
    for tree in _other_working_trees(repository):
        # Those elsewhere are not asked: they may be on a disk that does not answer.
        if tree.lower().startswith(root):
            _note_number(known, tree, BOUNDARY)
    for ours in _our_directories(repository, apart):
        _note_number(known, ours, None)
    return known


def _note_number(known: dict[tuple[int, int], str | None], place: bytes, why: str | None) -> None:
    with suppress(OSError):
        seen = os.stat(place)
        known[seen.st_dev, seen.st_ino] = why


def _our_directories(repository: Repository, apart: Collection[str]) -> set[bytes]:
    return {os.fsencode(ours) for ours in (repository.git_dir, repository.common_dir, *apart)}


def _add(pruned: dict[bytes, str | None], top: bytes, base: bytes, place: bytes, why: str | None) -> None:
    prefix = base.rstrip(b"/") + b"/"
    if place.startswith(prefix) and len(place) > len(prefix):
        pruned[join(top, place[len(prefix) :])] = why


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
                place = file.read().rstrip(b"\n")
        except OSError:
            continue
        found.append(os.path.dirname(os.path.realpath(os.path.join(common, b"worktrees", name, place))))
    own = os.path.realpath(os.fsencode(repository.root))
    return [tree for tree in found if tree != own]


def _read_ignore_file(root: str) -> tuple[tuple[str, ...], list[str]]:
    """Its lines, and a warning where it is there and cannot be read."""
    path = os.path.join(os.fsencode(root), FILE_NAME)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            return split_lines(file.read(1 << 20).decode("utf-8", "surrogateescape")), []
    except FileNotFoundError:
        return (), []
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        return (), [f"'{os.fsdecode(FILE_NAME)}' cannot be read, so that it leaves nothing out: {reason}"]


def encrypted_paths(repository: Repository, settings: Settings) -> tuple[bytes, ...]:
    """Files that a `filter` attribute encrypts, tracked or not yet: in the working tree they stand in the clear."""
    drivers = [name for name in settings.filters if name != "lfs"]
    wanted = {os.fsencode(name) for name in drivers if _encrypts(repository, settings, name)}
    if not wanted:
        return ()
    git = repository.git
    # Without the index: every file is another one then, and a damaged index may not open what is closed.
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
