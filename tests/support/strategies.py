"""Hypothesis strategies for arbitrary trees, and for arbitrary edits."""

from __future__ import annotations

import os

from hypothesis import strategies as st

from tests.support.trees import (
    Append,
    Chmod,
    Directory,
    Edit,
    Fifo,
    File,
    Forge,
    HardLink,
    Link,
    Node,
    Put,
    Remove,
    Rename,
    Socket,
    Touch,
    Tree,
)

# Names that have caused data loss: names that git refuses or obeys, and names that break lists, shells and terminals.
ODD_NAMES = (
    *(b".GIT", b".Git", b"git~1", b"GIT~1", b".git.", b".git ", b".git. .", b".git::$INDEX_ALLOCATION"),
    *(".g\u200cit".encode(), ".gi\u2064t".encode(), b"x\\.git", b"..git", b".gitt"),
    *(b".gitattributes", b".GitAttributes", b".gitmodules", b"gitmod~1", b"GITATT~1", b".gitmodules "),
    *(
        b".gitignore",
        b".mailmap",
        b".envhist",
        b".ENVHIST",
        b"%2e",
        b"%2egit",
        b"%",
        b"%%",
        b"%zz",
        b"100%25",
    ),
    *(
        b"new\nline",
        b"tab\t",
        b"\r",
        b" ",
        b"  lead",
        b"trail ",
        b"dot.",
        b"-",
        b"--help",
        b"-n",
        b":",
        b":/x",
    ),
    *(b"a:b", b"con", b"aux.txt", b'"quoted"', b"'", b"back\\slash", b"*", b"?", b"[a]", b"#", b"!", b"~"),
    *(b"\xff\xfe", b"\x01\x02\x1b[2J", b"\x7f", b"\x9b31m", "\u202egpj".encode(), b"...", b". ", b".. "),
    *("é".encode(), "e\u0301".encode(), "ｅ".encode(), "İ".encode(), "ß".encode(), b"SS"),
    *(b"A", b"a", b"a.b", b"a0", b"a-", b"ab", b"x" * 255, b"\xc3\xa9" * 127),
    *(b".env", b".env.local", b".env.example", b"id_rsa", b"secret.pem", b".npmrc"),
)
PLAIN_NAMES = (b"src", b"lib", b"file", b"data.txt", b"b", b"c", b"node_modules", b"run.sh")
RESERVED_AT_TOP = (b".git", b".envhistignore")

ODD_CONTENTS = (
    *(b"", b"x", b"\n", b"\0", b"text\n", b"crlf\r\nlines\r\n", b"no newline", b"\xff" * 100),
    *(b"$Id$\n", b"<<<<<<< ours\n", b"* text=auto eol=crlf\n", b"API_KEY=secret\n", b"envhist-pieces 1\n"),
)

# ext4 stores times from 1901 to 2446.
MTIMES = st.one_of(
    st.sampled_from((0, -1, 1, -1_000_000_000, 1_000_000_000, -999_999_999, 1_700_000_000_123_456_789)),
    st.integers(-(2**31) * 10**9, 2**33 * 10**9),
)


def contents(max_size: int = 2000) -> st.SearchStrategy[bytes]:
    """Return a strategy for contents of files."""
    return st.one_of(st.sampled_from(ODD_CONTENTS), st.binary(max_size=max_size))


@st.composite
def names(draw: st.DrawFn, *, top: bool = False) -> bytes:
    """Draw any name that a directory can contain; at the top, without names that mean something to git or
    git-envhist."""
    name = draw(
        st.one_of(
            st.sampled_from(PLAIN_NAMES),
            st.sampled_from(ODD_NAMES),
            st.binary(min_size=1, max_size=40),
            st.text(min_size=1, max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
        )
    )
    name = name.replace(b"/", b"_").replace(b"\0", b"_")[:255]
    return name + b"_" if name in (b".", b"..") or (top and name in RESERVED_AT_TOP) else name


def file_modes(*, readable: bool = True) -> st.SearchStrategy[int]:
    """Return a strategy for all twelve bits; `readable` keeps the owner's right to read, which an ordinary user's
    capture needs."""
    always = 0o400 if readable else 0
    odd = st.integers(0, 0o7777).map(lambda mode: mode | always)
    return st.one_of(st.sampled_from((0o644, 0o755, 0o600, 0o664)), odd)


def directory_modes() -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from((0o755, 0o700, 0o1777)), st.integers(0, 0o7777).map(lambda m: m | 0o700))


def maybe_mtimes() -> st.SearchStrategy[int | None]:
    return st.one_of(st.none(), MTIMES)


def xattrs() -> st.SearchStrategy[tuple[tuple[str, bytes], ...]]:
    """Return a strategy for a few small attributes of the user namespace; an inode has little space."""
    labels = st.sampled_from(("user.a", "user.comment", "user.sp ace", "user.ümlaut"))
    one = st.dictionaries(labels, st.binary(max_size=60), max_size=2)
    return st.one_of(st.just(()), one.map(lambda found: tuple(sorted(found.items()))))


def links() -> st.SearchStrategy[Link]:
    """Return a strategy for links to anywhere: outside, to missing paths, to themselves; they are never followed."""
    targets = st.one_of(
        st.sampled_from((b"/etc/passwd", b"../../..", b".", b"src", b"file", b"\x1b[2J", b"x" * 4000)),
        st.binary(min_size=1, max_size=60).map(lambda target: target.replace(b"\0", b"_")),
    )
    return st.builds(Link, targets, maybe_mtimes())


def files(*, readable: bool = True) -> st.SearchStrategy[File]:
    return st.builds(File, contents(), file_modes(readable=readable), maybe_mtimes(), xattrs())


def directories() -> st.SearchStrategy[Directory]:
    return st.builds(Directory, directory_modes(), maybe_mtimes(), xattrs())


def nodes(*, readable: bool = True) -> st.SearchStrategy[Node]:
    """Return a strategy for anything that can exist at a path, mostly files and directories."""
    return st.one_of(
        files(readable=readable),
        files(readable=readable),
        directories(),
        directories(),
        links(),
        st.builds(Fifo, file_modes(), maybe_mtimes()),
        st.builds(Socket, maybe_mtimes()),
    )


@st.composite
def trees(draw: st.DrawFn, *, max_entries: int = 25, readable: bool = True) -> Tree:
    """Draw a tree: any types, names, modes, times, hard links, empty directories, a few levels deep."""
    tree: dict[bytes, Node] = {}
    places = [b""]
    for _ in range(draw(st.integers(0, max_entries))):
        parent = draw(st.sampled_from(places))
        path = _below(parent, draw(names(top=parent == b"")))
        if path in tree or len(path) > 3000:
            continue
        tree[path] = _node_or_hard_link(draw, tree, readable)
        if isinstance(tree[path], Directory):
            places.append(path)
    return tree


def _below(parent: bytes, name: bytes) -> bytes:
    return parent + b"/" + name if parent else name


def _node_or_hard_link(draw: st.DrawFn, tree: dict[bytes, Node], readable: bool) -> Node:
    leaders = [path for path, node in tree.items() if isinstance(node, File)]
    if leaders and draw(st.integers(0, 9)) == 0:
        return HardLink(draw(st.sampled_from(leaders)))
    return draw(nodes(readable=readable))


@st.composite
def edits(draw: st.DrawFn, tree: Tree, *, max_edits: int = 8, readable: bool = True) -> tuple[Edit, ...]:
    """Draw edits of a tree, mostly of existing paths, some of new ones."""
    return tuple(draw(edit(tree, readable=readable)) for _ in range(draw(st.integers(0, max_edits))))


@st.composite
def edit(draw: st.DrawFn, tree: Tree, *, readable: bool = True) -> Edit:
    """Draw an edit."""
    path = draw(some_path(tree))
    kinds = (Put, Put, Remove, Append, Forge, Chmod, Touch, Rename)
    match draw(st.sampled_from(kinds)):
        case kind if kind is Put:
            return Put(path, draw(nodes(readable=readable)))
        case kind if kind is Remove:
            return Remove(path)
        case kind if kind is Append:
            return Append(path, draw(contents(max_size=100)))
        case kind if kind is Forge:
            return Forge(path)
        case kind if kind is Chmod:
            return Chmod(path, draw(directory_modes()))
        case kind if kind is Touch:
            return Touch(path, draw(MTIMES))
        case _:
            return Rename(path, _sibling(path, draw(names(top=b"/" not in path))))


@st.composite
def some_path(draw: st.DrawFn, tree: Tree) -> bytes:
    """Draw a path of the tree, or a new one in one of its directories."""
    taken = [path for path in tree if path]
    if taken and draw(st.integers(0, 3)):
        return draw(st.sampled_from(taken))
    parent = draw(st.sampled_from([b"", *(p for p in taken if isinstance(tree[p], Directory))]))
    return _below(parent, draw(names(top=parent == b"")))


def _sibling(path: bytes, name: bytes) -> bytes:
    return _below(os.path.dirname(path), name)
