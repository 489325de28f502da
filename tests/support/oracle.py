"""Independent judges of trees: `find`, `sha256sum` and `rsync`, never the scanner of git-envhist."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

FIELDS = ("%P", "%y", "%m", "%s", "%T@", "%l", "%U", "%G", "%D:%i", "%n")
KINDS = {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFSOCK: "s", stat.S_IFIFO: "p",
         stat.S_IFCHR: "c", stat.S_IFBLK: "b"}  # fmt: skip
FORMAT = "".join(field + r"\0" for field in FIELDS)


@dataclass(frozen=True, slots=True)
class Listed:
    """A path as listed by `find` and `sha256sum`."""

    kind: str
    """find's letter: f d l p s c b."""
    mode: int
    mtime_ns: int
    size: int | None
    """Only files and links have a size; None for other kinds."""
    target: bytes | None
    uid: int
    gid: int
    sha256: str | None
    """None for other kinds, and for an unreadable file."""
    linked: tuple[bytes, ...]
    """The other paths that are the same file."""
    xattrs: tuple[tuple[str, bytes], ...]


Listing = dict[bytes, Listed]


def listing(
    root: str | os.PathLike[str], *, without: Iterable[bytes] = (b".git",), top: bool = False
) -> Listing:
    """List everything below a directory, except the named paths (by default the top's `.git`); `top`: also itself, as
    b""."""
    found, inodes = _find(os.fsencode(root), tuple(without))
    hashes = _hashes(os.fsencode(root), [path for path, entry in found.items() if entry.kind == "f"])
    groups: dict[bytes, list[bytes]] = {}
    for path, inode in inodes.items():
        groups.setdefault(inode, []).append(path)
    for path, entry in found.items():
        others = () if entry.kind == "d" else tuple(p for p in sorted(groups[inodes[path]]) if p != path)
        xattrs = _xattrs(os.path.join(os.fsencode(root), path))
        found[path] = replace(entry, sha256=hashes.get(path), linked=others, xattrs=xattrs)
    if not top:
        found.pop(b"")
    return found


def kernel_listing(root: str | os.PathLike[str], *, without: Iterable[bytes] = (b".git",)) -> Listing:
    """Return what `listing(root, top=True)` returns, from lstat and hashlib in this process: 20 times as fast."""
    top, left_out = os.fsencode(root), frozenset(without)
    found: Listing = {}
    inodes: dict[bytes, tuple[int, int]] = {}
    waiting = [b""]
    while waiting:
        path = waiting.pop()
        place = os.path.join(top, path) if path else top
        status = os.lstat(place)
        found[path] = _listed(place, status)
        inodes[path] = (status.st_dev, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            with suppress(PermissionError):
                below = (os.path.join(path, name) if path else name for name in os.listdir(place))
                waiting.extend(one for one in below if one not in left_out)
    groups: dict[tuple[int, int], list[bytes]] = {}
    for path in sorted(found):
        groups.setdefault(inodes[path], []).append(path)
    for path, entry in found.items():
        group = groups[inodes[path]]
        if len(group) > 1 and entry.kind != "d":
            found[path] = replace(entry, linked=tuple(one for one in group if one != path))
    return found


def _listed(place: bytes, status: os.stat_result) -> Listed:
    letter = KINDS[stat.S_IFMT(status.st_mode)]
    digest = None
    if letter == "f":
        with suppress(PermissionError), open(place, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    return Listed(
        kind=letter,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        size=status.st_size if letter in "fl" else None,
        target=os.readlink(place) if letter == "l" else None,
        uid=status.st_uid,
        gid=status.st_gid,
        sha256=digest,
        linked=(),
        xattrs=_xattrs(place),
    )


def _find(root: bytes, without: tuple[bytes, ...]) -> tuple[Listing, dict[bytes, bytes]]:
    # -path takes a pattern, so special characters are quoted.
    prune: list[bytes] = []
    for path in without:
        quoted = b"".join(b"\\" + bytes([c]) if c in b"*?[]\\" else bytes([c]) for c in path)
        prune += [b"-path", b"./" + quoted, b"-prune", b"-o"]
    words = [b"find", b".", *prune, b"-printf", FORMAT.encode()]
    # A directory that cannot be entered is listed without its contents; find's message is ignored.
    out = subprocess.run(words, cwd=root, capture_output=True, check=False, env=_plain()).stdout
    parts = out.split(b"\0")[:-1]
    found: Listing = {}
    inodes: dict[bytes, bytes] = {}
    for start in range(0, len(parts), len(FIELDS)):
        path, kind, mode, size, mtime, target, uid, gid, inode, _ = parts[start : start + len(FIELDS)]
        letter = kind.decode()
        found[path] = Listed(
            kind=letter,
            mode=int(mode, 8),
            mtime_ns=_nanoseconds(mtime),
            size=int(size) if letter in "fl" else None,
            target=target if letter == "l" else None,
            uid=int(uid),
            gid=int(gid),
            sha256=None,
            linked=(),
            xattrs=(),
        )
        inodes[path] = inode
    return found, inodes


def _nanoseconds(text: bytes) -> int:
    # find prints seconds rounded down and the fraction counted up from there, also before 1970.
    seconds, _, fraction = text.partition(b".")
    return int(seconds) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))


def _hashes(root: bytes, paths: list[bytes]) -> dict[bytes, str]:
    names = b"".join(b"./" + path + b"\0" for path in paths)
    words = ["xargs", "-0", "-r", "sha256sum", "-z", "--"]
    out = subprocess.run(words, input=names, cwd=root, capture_output=True, check=False, env=_plain()).stdout
    lines = out.split(b"\0")[:-1]
    return {line[66:].removeprefix(b"./"): line[:64].decode() for line in lines}


def _xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    if not hasattr(os, "listxattr"):
        return ()
    found: list[tuple[str, bytes]] = []
    # Attributes that cannot be read cannot be compared.
    with suppress(OSError):
        names = sorted(os.listxattr(path, follow_symlinks=False))
        found.extend((name, os.getxattr(path, name, follow_symlinks=False)) for name in names)
    return tuple(found)


def _plain() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "TZ": "UTC"}


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the checksums of a file by coreutils."""
    directory, name = os.path.split(os.fsencode(path))
    return _hashes(directory, [name])[name]


def tree_differences(
    first: str | os.PathLike[str], second: str | os.PathLike[str], *, without: Iterable[str] = ("/.git",)
) -> tuple[str, ...]:
    """Return how the second tree differs from the first, byte for byte: lines of a kind and a path.

    `without` names paths from the top, each with a slash before it. Uses rsync if it is installed, else find and
    sha256sum.
    """
    compare = rsync_differences if shutil.which("rsync") else find_differences
    return compare(first, second, without=without)


def rsync_differences(
    first: str | os.PathLike[str], second: str | os.PathLike[str], *, without: Iterable[str] = ("/.git",)
) -> tuple[str, ...]:
    """Return the changes rsync would make to turn the second tree into the first."""
    words = ["rsync", "-aHAXn", "--checksum", "--itemize-changes", "--delete", "--numeric-ids"]
    words += [f"--exclude={pattern}" for pattern in without]
    done = subprocess.run(
        [*words, f"{Path(first)}/", f"{Path(second)}/"], capture_output=True, check=False, env=_plain()
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return tuple(done.stdout.decode("utf-8", "backslashreplace").splitlines())


def find_differences(
    first: str | os.PathLike[str], second: str | os.PathLike[str], *, without: Iterable[str] = ("/.git",)
) -> tuple[str, ...]:
    """Compare two trees by find, sha256sum and the kernel's extended attributes."""
    left_out = [os.fsencode(path.strip("/")) for path in without]
    before, after = (listing(tree, without=left_out, top=True) for tree in (first, second))
    found = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one == other:
            continue
        kind = (
            "missing"
            if other is None
            else "added"
            if one is None
            else ",".join(_differing_fields(one, other))
        )
        is_directory = "d" in (one and one.kind, other and other.kind)
        found.append(f"{kind} {path.decode('utf-8', 'backslashreplace')}{'/' if is_directory else ''}")
    return tuple(found)


def _differing_fields(one: Listed, other: Listed) -> list[str]:
    return [field.name for field in fields(Listed) if getattr(one, field.name) != getattr(other, field.name)]


def git_fsck(repository: str | os.PathLike[str]) -> str:
    """Return the output of `git fsck --strict`; empty if there are no errors."""
    words = [
        "git",
        "-C",
        os.fspath(repository),
        "fsck",
        "--strict",
        "--full",
        "--no-dangling",
        "--no-progress",
    ]
    done = subprocess.run(words, capture_output=True, check=False)
    lines = (done.stdout + done.stderr).decode("utf-8", "backslashreplace").splitlines()
    # A branch without a commit and advice are not errors.
    complaint = "\n".join(line for line in lines if not line.startswith(("notice: ", "hint: ")))
    return complaint or ("" if done.returncode == 0 else f"git fsck ended with status {done.returncode}")
