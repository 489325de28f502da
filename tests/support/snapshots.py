"""Snapshots described as data and written by C git: trees and manifest, without the writers of git-envhist."""

from __future__ import annotations

import hashlib
import os
import subprocess
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from git_envhist.model import EntryKind, StoredAs
from git_envhist.snapshots.stored_names import stored_name

GIT_MODES = {EntryKind.LINK: b"120000"}


@dataclass(frozen=True, slots=True)
class Described:
    """A described path; `content` None: it is not in the tree."""

    kind: EntryKind = EntryKind.FILE
    content: bytes | None = b""
    mode: int = 0o644
    mtime_ns: int = 1
    owner: tuple[int, int] = (1000, 1000)
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    stored: StoredAs = StoredAs.PLAIN
    words: bytes = b""
    """Additional words of its line, as written."""


Tree = Mapping[bytes, Described]


def file(content: bytes = b"", mode: int = 0o644, **more: object) -> Described:
    return Described(EntryKind.FILE, content, mode, **more)  # type: ignore[arg-type]


def link(target: bytes) -> Described:
    return Described(EntryKind.LINK, target, 0o777)


def directory(mode: int = 0o755, **more: object) -> Described:
    return Described(EntryKind.DIRECTORY, None, mode, **more)  # type: ignore[arg-type]


def fifo(mode: int = 0o644) -> Described:
    return Described(EntryKind.FIFO, None, mode)


def with_parents(tree: Tree) -> dict[bytes, Described]:
    """Return the tree with all parent directories and the top."""
    whole = dict(tree)
    for path in tree:
        while path:
            path = os.path.dirname(path)
            whole.setdefault(path, directory())
    whole.setdefault(b"", directory())
    return whole


def write_snapshot(
    repository: Path,
    tree: Tree,
    *,
    roots: Mapping[str, Tree] | None = None,
    nested: Mapping[str, Tree] | None = None,
    others: Mapping[bytes, bytes] | None = None,
) -> str:
    """Write a snapshot's tree into a repository and return its id. `others`: further files, by their stored paths."""
    files: dict[bytes, tuple[bytes, bytes]] = {
        path: (b"100644", data) for path, data in (others or {}).items()
    }
    # The `.git` of a nested repository is only named here, because it is a separate root.
    named = {place.encode() + b"/.git" for place in nested or {}}
    _add_root(files, b"", with_parents(tree), named)
    for name, below in (roots or {}).items():
        _add_root(files, b".envhist/roots/" + name.encode(), with_parents(below))
    for place, below in (nested or {}).items():
        _add_root(files, b".envhist/dotgit/" + place.replace("/", "%2f").encode(), with_parents(below))
    return _import(repository, files)


def _add_root(
    files: dict[bytes, tuple[bytes, bytes]], root: bytes, tree: Tree, elsewhere: Collection[bytes] = ()
) -> None:
    lines: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for path, thing in tree.items():
        stored = _stored(root, path, thing.kind is EntryKind.LINK)
        above, name = os.path.split(path)
        if thing.kind is EntryKind.DIRECTORY:
            if path not in elsewhere:
                lines.setdefault(path, [])
            if path:
                # This line only names the directory; the directory's own shard has the metadata.
                lines.setdefault(above, []).append((name, _quote(name) + b" d 0000 0\n"))
            continue
        lines.setdefault(above, []).append((name, _line(path, thing, tree[above].owner)))
        if thing.content is not None:
            mode = b"100755" if thing.mode & 0o100 else b"100644"
            files[stored] = (GIT_MODES.get(thing.kind, mode), thing.content)
    for path, found in lines.items():
        own = tree[path]
        stored = _stored(root, path, False)
        owner = b" u=%d g=%d" % own.owner
        head = b"envhist-manifest 1 %b\n" % (_quote(stored) or b".")
        head += b". d %04o %d%b%b\n" % (own.mode, own.mtime_ns, owner, _extras(own))
        digest = hashlib.sha256(stored).hexdigest().encode()
        shard = b".envhist/manifest/" + digest[:2] + b"/" + digest[2:40]
        files[shard] = (b"100644", head + b"".join(line for _, line in sorted(found)))


def _stored(root: bytes, path: bytes, is_link: bool) -> bytes:
    parts = path.split(b"/") if path else []
    names = [
        stored_name(part, top=not root and number == 0, link=is_link and number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
    return b"/".join([*([root] if root else []), *names])


def _line(path: bytes, thing: Described, owner: tuple[int, int]) -> bytes:
    words = b"%b %b %04o %d" % (
        _quote(os.path.basename(path)), thing.kind.value.encode(), thing.mode, thing.mtime_ns
    )  # fmt: skip
    if thing.owner[0] != owner[0]:
        words += b" u=%d" % thing.owner[0]
    if thing.owner[1] != owner[1]:
        words += b" g=%d" % thing.owner[1]
    return words + _extras(thing) + b"\n"


def _extras(thing: Described) -> bytes:
    stored = b"" if thing.stored is StoredAs.PLAIN else b" as=" + thing.stored.value.encode()
    attributes = b"".join(b" x=%b:%b" % (_quote(name), b64encode(value)) for name, value in thing.xattrs)
    return stored + (b" " + thing.words if thing.words else b"") + attributes


def _quote(value: bytes) -> bytes:
    return b"".join(b"%%%02x" % c if c <= 0x20 or c in (0x25, 0x7F) else bytes((c,)) for c in value)


def _import(repository: Path, files: Mapping[bytes, tuple[bytes, bytes]]) -> str:
    stream = [b"feature done\ncommit refs/heads/written\ncommitter T <t@e> 1 +0000\ndata 0\n"]
    for path, (mode, data) in files.items():
        stream.append(b"M %b inline %b\ndata %d\n%b\n" % (mode, _c_quoted(path), len(data), data))
    stream.append(b"done\n")
    git = ["git", "-C", str(repository)]
    subprocess.run([*git, "update-ref", "-d", "refs/heads/written"], check=True)
    subprocess.run([*git, "fast-import", "--quiet"], input=b"".join(stream), check=True)
    found = subprocess.run([*git, "rev-parse", "refs/heads/written^{tree}"], capture_output=True, check=True)
    return found.stdout.decode().strip()


def _c_quoted(path: bytes) -> bytes:
    plain = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/%")
    return b'"' + b"".join(bytes((c,)) if c in plain else b"\\%03o" % c for c in path) + b'"'
