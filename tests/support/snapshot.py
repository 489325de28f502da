"""Read snapshots with plain git, by docs/internals/format.md, without any code of the writer.

The result has the type of `oracle.listing`, so that a snapshot and the disk can be compared.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from base64 import b64decode
from dataclasses import dataclass, field, replace

from tests.support.oracle import Listed, Listing
from tests.support.repository import Repo

MANIFEST = b".envhist/manifest/"
PIECES = b"envhist-pieces 1\n"
NAMED_ONLY = b"0000 0"
KNOWN_WORDS = {"u", "g", "l", "r", "as", "x"}


@dataclass
class ReadBack:
    """A snapshot that was read: every path, and the storage of files that are not stored plainly."""

    listing: Listing = field(default_factory=dict)
    stored: dict[bytes, str] = field(default_factory=dict)
    """Path -> sealed, pieces or fingerprint."""
    roots: dict[str, Listing] = field(default_factory=dict)
    """The additional roots by their names."""
    notes: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    """Other words of a line, unparsed."""


def read_back(repo: Repo, commit: str) -> ReadBack:
    """Read everything of a snapshot."""
    tree = _read_tree(repo, commit)
    blobs = _read_blobs(repo, {oid for _, oid in tree.values()})
    found = ReadBack()
    for path, (_, oid) in tree.items():
        if path.startswith(MANIFEST):
            _read_shard(repo, blobs[oid], path, tree, blobs, found)
    for listing in (found.listing, *found.roots.values()):
        _join_links(listing)
    return found


def contents(repo: Repo, commit: str) -> dict[bytes, bytes]:
    """Return the bytes of every plain file and link of a snapshot, by their true paths; big files are joined."""
    tree = _read_tree(repo, commit)
    blobs = _read_blobs(repo, {oid for _, oid in tree.values()})
    found = {}
    for path, (_, oid) in tree.items():
        if not path.startswith(b".envhist/"):
            data = blobs[oid]
            name = b"/".join(map(_true_name, path.split(b"/")))
            found[name] = _join_pieces(repo, data) if data.startswith(PIECES) else data
    return found


def _read_tree(repo: Repo, commit: str) -> dict[bytes, tuple[str, str]]:
    out = repo.run_git("ls-tree", "-r", "-z", "--full-tree", commit).stdout
    tree = {}
    for line in out.split(b"\0")[:-1]:
        head, _, path = line.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        tree[path] = (mode, oid)
    return tree


def _read_blobs(repo: Repo, oids: set[str]) -> dict[str, bytes]:
    names = "".join(f"{oid}\n" for oid in sorted(oids)).encode()
    words = ["git", "cat-file", "--batch", "--buffer"]
    out = subprocess.run(
        words, input=names, cwd=repo.path, env=repo.env, capture_output=True, check=True
    ).stdout
    blobs, at = {}, 0
    while at < len(out):
        end = out.index(b"\n", at)
        oid, _, size = out[at:end].decode().split(" ")
        blobs[oid] = out[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
    return blobs


def _read_shard(
    repo: Repo,
    text: bytes,
    place: bytes,
    tree: dict[bytes, tuple[str, str]],
    blobs: dict[str, bytes],
    found: ReadBack,
) -> None:
    header, own, *lines = text.removesuffix(b"\n").split(b"\n")
    word, version, quoted = header.split(b" ")
    assert (word, version) == (b"envhist-manifest", b"1")
    stored = b"" if quoted == b"." else _unquote(quoted)
    digest = hashlib.sha256(stored).hexdigest()[:40].encode()
    assert place == MANIFEST + digest[:2] + b"/" + digest[2:], (
        "the path of a shard must follow from the hash of its directory"
    )
    assert lines == sorted(lines, key=lambda line: _unquote(line.split(b" ")[0]))
    listing, directory = _place_of(stored, found)
    here = _read_line(own)
    owner = (here.uid, here.gid)
    listing[directory] = here
    leaves = {_true_name(path.rpartition(b"/")[2]): entry for path, entry in _inside(tree, stored)}
    for line in lines:
        name = _unquote(line.split(b" ")[0])
        path = directory + b"/" + name if directory else name
        if line.split(b" ", 1)[1].startswith(b"d "):
            # This line only names the directory; the directory's own shard has the metadata.
            assert line.split(b" ", 2)[2] == NAMED_ONLY
            continue
        entry = _read_line(line, owner)
        words = _words(line)
        if "as" in words:
            found.stored[path] = words["as"][0]
        others = tuple(f"{key}={value}" for key in words.keys() - KNOWN_WORDS for value in words[key])
        if others:
            found.notes[path] = others
        if name in leaves:
            entry = _with_bytes(repo, entry, blobs[leaves[name][1]], words.get("as", ["plain"])[0])
        listing[path] = entry


def _place_of(stored: bytes, found: ReadBack) -> tuple[Listing, bytes]:
    """Return the listing that a stored directory belongs to, and its true path there."""
    names = stored.split(b"/") if stored else []
    if names[:2] == [b".envhist", b"dotgit"]:
        return found.listing, b"/".join([_unquote(names[2]), b".git", *map(_true_name, names[3:])])
    if names[:2] == [b".envhist", b"roots"]:
        root = found.roots.setdefault(names[2].decode(), {})
        return root, b"/".join(map(_true_name, names[3:]))
    return found.listing, b"/".join(map(_true_name, names))


def _inside(tree: dict[bytes, tuple[str, str]], stored: bytes) -> list[tuple[bytes, tuple[str, str]]]:
    prefix = stored + b"/" if stored else b""
    return [(p, e) for p, e in tree.items() if p.startswith(prefix) and b"/" not in p[len(prefix) :]]


def _unquote(text: bytes) -> bytes:
    return re.sub(rb"%([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), text)


_true_name = _unquote


def _words(line: bytes) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for word in line.split(b" ")[4:]:
        key, _, value = word.partition(b"=")
        words.setdefault(key.decode(), []).append(value.decode("utf-8", "surrogateescape"))
    return words


def _read_line(line: bytes, owner: tuple[int, int] = (-1, -1)) -> Listed:
    _, kind, mode, mtime = line.split(b" ")[:4]
    words = _words(line)
    group = words.get("l", [""])[0]
    return Listed(
        kind=kind.decode(),
        mode=int(mode, 8),
        mtime_ns=int(mtime),
        size=None,
        target=None,
        uid=int(words.get("u", [str(owner[0])])[0]),
        gid=int(words.get("g", [str(owner[1])])[0]),
        sha256=None,
        linked=(group.encode(),) if group else (),
        xattrs=tuple(_xattr(word) for word in words.get("x", [])),
    )


def _xattr(word: str) -> tuple[str, bytes]:
    name, _, value = word.rpartition(":")
    return _unquote(name.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape"), b64decode(
        value
    )


def _with_bytes(repo: Repo, entry: Listed, data: bytes, stored: str) -> Listed:
    if entry.kind == "l":
        return replace(entry, size=len(data), target=data)
    if stored == "pieces":
        data = _join_pieces(repo, data)
    if stored in ("sealed", "fingerprint"):
        return entry
    return replace(entry, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _join_pieces(repo: Repo, pointer: bytes) -> bytes:
    assert pointer.startswith(PIECES)
    fields = dict(line.split(b" ") for line in pointer.removeprefix(PIECES).splitlines())
    listed = repo.git("ls-tree", "-r", fields[b"tree"]).splitlines()
    oids = [line.split()[2] for line in listed]
    blobs = _read_blobs(repo, set(oids))
    data = b"".join(blobs[oid] for oid in oids)
    assert len(data) == int(fields[b"size"])
    return data


def _join_links(listing: Listing) -> None:
    groups: dict[bytes, list[bytes]] = {}
    for path, entry in listing.items():
        if entry.linked:
            groups.setdefault(entry.linked[0], []).append(path)
    for paths in groups.values():
        for path in paths:
            others = tuple(sorted(other for other in paths if other != path))
            listing[path] = replace(listing[path], linked=others)
