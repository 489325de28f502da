"""Trees described as data, and built on the disk; `strategies` makes arbitrary ones."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

Xattrs = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class File:
    """A regular file; `mtime_ns` None keeps the time of its creation."""

    content: bytes = b""
    mode: int = 0o644
    mtime_ns: int | None = None
    xattrs: Xattrs = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link."""

    target: bytes
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory: needed only if it is empty or has a given mode, time or attributes."""

    mode: int = 0o755
    mtime_ns: int | None = None
    xattrs: Xattrs = ()


@dataclass(frozen=True, slots=True)
class Fifo:
    """A named pipe."""

    mode: int = 0o644
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Socket:
    """A socket without a listener."""

    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class HardLink:
    """A hard link to the file at another path of the tree."""

    to: bytes


Node = File | Link | Directory | Fifo | Socket | HardLink
Tree = Mapping[bytes, Node]
"""Paths below the root as bytes, with their nodes; b"" is the root itself."""


def build(tree: Tree, root: str | os.PathLike[str]) -> None:
    """Make a tree on the disk; other existing paths are not changed."""
    os.makedirs(root, exist_ok=True)
    with inside(root):
        for path in _in_order(tree):
            make(path, tree[path])
        for path in sorted(tree, key=lambda p: -p.count(b"/") - (p != b"")):
            finish(path, tree[path])


@contextmanager
def inside(root: str | os.PathLike[str]) -> Iterator[None]:
    """Work in a directory, so that deep paths stay short."""
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir(root)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def _in_order(tree: Tree) -> list[bytes]:
    # Create a hard link after its file.
    return sorted(tree, key=lambda path: (isinstance(tree[path], HardLink), path.count(b"/"), path))


def make(path: bytes, node: Node) -> None:
    """Create a node without its mode and time."""
    if parent := os.path.dirname(path):
        os.makedirs(parent, exist_ok=True)
    match node:
        case File(content=content):
            with open(path, "wb") as file:
                file.write(content)
        case Link(target=target):
            os.symlink(target, path)
        case Directory():
            os.makedirs(path or b".", exist_ok=True)
        case Fifo():
            os.mkfifo(path)
        case Socket():
            make_socket(path)
        case HardLink(to=target):
            os.link(target, path, follow_symlinks=False)


def make_socket(path: bytes) -> None:
    # A socket's address is limited in length, so it is bound by its name only, in its own directory.
    directory, name = os.path.split(path)
    with inside(os.fsdecode(directory or b".")), socket.socket(socket.AF_UNIX) as bound:
        # Use a new name, because `bind` fails if the path exists.
        bound.bind(b"bound-just-now")
        os.rename(b"bound-just-now", name)


def finish(path: bytes, node: Node) -> None:
    """Set mode, attributes and time; the deepest first, because they change the directory above."""
    path = path or b"."
    if isinstance(node, File | Directory):
        # Set attributes if the file system has them; the judge reads the real ones.
        with suppress(OSError):
            for name, value in node.xattrs:
                os.setxattr(path, name, value)
    if isinstance(node, File | Directory | Fifo):
        os.chmod(path, node.mode)
    if not isinstance(node, HardLink) and node.mtime_ns is not None:
        os.utime(path, ns=(node.mtime_ns, node.mtime_ns), follow_symlinks=False)


# Edits between two captures; an edit of a missing path does nothing.


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the path."""

    path: bytes
    node: Node


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the path and everything below it."""

    path: bytes


@dataclass(frozen=True, slots=True)
class Append:
    """Append bytes to a file, in place."""

    path: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class Forge:
    """Change a file's bytes in place, and keep its size and its time."""

    path: bytes


@dataclass(frozen=True, slots=True)
class Chmod:
    path: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Touch:
    path: bytes
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Rename:
    path: bytes
    to: bytes


IN_THE_WAY = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)

Edit = Put | Remove | Append | Forge | Chmod | Touch | Rename


def apply(edits: tuple[Edit, ...] | list[Edit], root: str | os.PathLike[str]) -> None:
    """Carry the edits out, one after another."""
    with inside(root):
        for edit in edits:
            # An earlier edit may have removed the path, or put a file, or a link to itself, where this one needs a
            # directory.
            try:
                carry_out(edit)
            except OSError as error:
                if error.errno not in IN_THE_WAY:
                    raise


def carry_out(edit: Edit) -> None:
    match edit:
        case Put(path=path, node=node):
            remove(path)
            make(path, node)
            finish(path, node)
        case Remove(path=path):
            remove(path)
        case Append(path=path, content=content):
            if is_file(path):
                with writable(path), open(path, "ab") as file:
                    file.write(content)
        case Forge(path=path):
            forge(path)
        case Chmod(path=path, mode=mode):
            if not os.path.islink(path):
                os.chmod(path, mode)
        case Touch(path=path, mtime_ns=mtime_ns):
            os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)
        case Rename(path=path, to=to):
            if os.path.lexists(path) and not os.path.lexists(to) and not to.startswith(path + b"/"):
                os.rename(path, to)


def forge(path: bytes) -> None:
    if not is_file(path):
        return
    before = os.lstat(path)
    with writable(path), open(path, "r+b") as file:
        turned = bytes(byte ^ 0xFF for byte in file.read())
        file.seek(0)
        file.write(turned)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextmanager
def writable(path: bytes) -> Iterator[None]:
    """Let an ordinary user write to a read-only file, as an editor does with `:w!`."""
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    if mode & 0o600 == 0o600:
        yield
        return
    os.chmod(path, mode | 0o600)
    yield
    os.chmod(path, mode)


def is_file(path: bytes) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def remove(path: bytes) -> None:
    """Remove a path of any kind."""
    try:
        kind = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(kind):
        os.unlink(path)
        return
    for name in os.listdir(path):
        remove(path + b"/" + name)
    os.rmdir(path)
