"""Look through all that leaves with a push: how much of what is in the clear, which names tell, and no token in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from git_envhist.capture.keymaterial import is_key_material
from git_envhist.capture.seal import MAGIC as SEALED
from git_envhist.capture.secretnames import is_secret_name
from git_envhist.capture.tokenforms import TOKENS
from git_envhist.capture.tokens import URL_WHAT, find_tokens
from git_envhist.capture.tokensigns import URL_PASSWORD
from git_envhist.history.classes import CLASSES, DATABASES, PACKAGES, class_of
from git_envhist.history.dumps import is_dump
from git_envhist.model import SQLITE_HEADER
from git_envhist.model.sharing import ClassSize, FoundToken, OutgoingScan
from git_envhist.sharing.layers import GZIP, Unfolding, readings
from git_envhist.sharing.words import secret_in_words
from git_envhist.store.git import Git
from git_envhist.store.layout import DOTGIT, RESERVED
from git_envhist.store.remoteload import OutgoingObject, contents, files_of_pieces, piece_of, shown_place

SEALED_CLASS, REPOSITORIES, RECORDS = "sealed", "repositories", "records"
ORDER = (*CLASSES, REPOSITORIES, RECORDS, SEALED_CLASS)
"""`records`: what we write about them: manifests, lists, notes."""
ALWAYS = (RECORDS, SEALED_CLASS)
"""These leave with every push, and show nothing of the environment's contents."""
KEY_WHAT = "private keys in DER, or a store of keys"
OVERLAP = 4096
"""A token may stand across the cut between two pieces of a file."""
NESTED = RESERVED + b"/" + DOTGIT + b"/"


def scan_outgoing(git: Git, leaving: Sequence[OutgoingObject], largest: int) -> OutgoingScan:
    """Read all that leaves once, in every directory. An object larger than `largest` is refused, and not read."""
    big = files_of_pieces(git, leaving)
    tally = _OutgoingTotals()
    for path, size in big.values():
        tally.add(class_of(path), path, size, b"")
    wanted = [one for one in leaving if one.kind in ("blob", "commit") and one.size <= largest]
    pieces = _Pieces()
    for one, data in contents(git, wanted):
        piece = piece_of(one)
        path = big.get(piece, (one.path, 0))[0] if piece is not None else one.path
        sealed = data.startswith(SEALED)
        if piece is None and one.kind == "blob":
            tally.add(_class(one, path, data, sealed), path, one.size, data)
        texts = pieces.texts(piece, data)
        if not sealed:
            tally.find(path if piece is not None else shown_place(one, data), texts)
        tally.add_word(None if sealed else secret_in_words(one, data))
    return tally.look()


def too_large(leaving: Iterable[OutgoingObject], largest: int) -> list[OutgoingObject]:
    """The objects that hosts refuse for their size."""
    return [one for one in leaving if one.size > largest]


def is_allowed(path: bytes, allow: Iterable[bytes]) -> bool:
    """Whether a path, or a directory that it lies in, is among those that may leave."""
    return any(path == one or path.startswith(one.rstrip(b"/") + b"/") for one in allow)


class _Pieces:
    """The pieces of big files, each with the end of the one before it, and what a compressed file unfolds to."""

    def __init__(self) -> None:
        self._tail = b""
        self._whose: bytes | None = None
        self._unfolding: Unfolding | None = None
        self._unfolded = b""

    def texts(self, piece: bytes | None, data: bytes) -> Iterator[bytes]:
        """What is to be searched: all forms of a whole file, or a piece of one."""
        if piece is None:
            self._whose, self._tail, self._unfolding = None, b"", None
            return readings(data)
        if piece != self._whose:
            self._whose, self._tail, self._unfolded = piece, b"", b""
            self._unfolding = Unfolding() if data.startswith(GZIP) else None
        text, self._tail = self._tail + data, data[-OVERLAP:]
        return iter((*readings(text), *self._unfold(data)))

    def _unfold(self, data: bytes) -> Iterator[bytes]:
        if self._unfolding is not None:
            found = self._unfolded + self._unfolding.add(data)
            self._unfolded = found[-OVERLAP:]
            yield found


class _OutgoingTotals:
    def __init__(self) -> None:
        self._shares: dict[str, tuple[int, int]] = {}
        self._databases: dict[bytes, int] = {}
        self._dumps: dict[bytes, int] = {}
        self._names: dict[bytes, None] = {}
        self._tokens: dict[tuple[bytes, str], None] = {}

    def add(self, name: str, path: bytes, size: int, data: bytes) -> None:
        files, total = self._shares.get(name, (0, 0))
        self._shares[name] = (files + 1, total + size)
        if name in ALWAYS:
            return
        if name == DATABASES:
            self._databases[path] = max(size, self._databases.get(path, 0))
        elif name != PACKAGES and is_dump(path, data):
            self._dumps[path] = max(size, self._dumps.get(path, 0))
        if is_secret_name(path):
            self._names[path] = None

    def find(self, path: bytes, texts: Iterable[bytes]) -> None:
        for text in texts:
            if is_key_material(text):
                self._tokens[(path, KEY_WHAT)] = None
            for kind in find_tokens(text):
                self._tokens[(path, URL_WHAT if kind == URL_PASSWORD else TOKENS[kind][0])] = None

    def add_word(self, found: FoundToken | None) -> None:
        if found is not None:
            self._tokens[(found.path, found.kind)] = None

    def look(self) -> OutgoingScan:
        shares = tuple(ClassSize(name, *self._shares[name]) for name in ORDER if name in self._shares)
        tokens = tuple(FoundToken(path, kind) for path, kind in self._tokens)
        databases, dumps = tuple(sorted(self._databases.items())), tuple(sorted(self._dumps.items()))
        return OutgoingScan(shares, databases, tokens, dumps, tuple(sorted(self._names)))


def _class(one: OutgoingObject, path: bytes, data: bytes, sealed: bool) -> str:
    if sealed:
        return SEALED_CLASS
    if one.place.startswith(NESTED):
        return REPOSITORIES
    if not one.place or one.place.startswith(RESERVED + b"/"):
        return RECORDS
    # Its first bytes tell a database by whatever name it goes.
    return DATABASES if data.startswith(SQLITE_HEADER) else class_of(path)


def kinds_in(look: OutgoingScan) -> tuple[str, ...]:
    """Return what a push must be agreed to for, one word each: classes, databases, dumps, names that look secret."""
    classes = [f"class {share.name}" for share in look.shares if share.name not in ALWAYS]
    paths = {
        "database": [path for path, _ in look.databases],
        "dump": [path for path, _ in look.dumps],
        "name": list(look.names),
    }
    return (*classes, *(f"{kind} {path.hex()}" for kind, some in paths.items() for path in some))


def shown_kind(word: str) -> str:
    """One of these words as it is shown to people."""
    kind, _, rest = word.partition(" ")
    if kind == "class":
        return f"files of the class '{rest}'"
    shown = bytes.fromhex(rest).decode("utf-8", "surrogateescape")
    what = {"database": "the database", "dump": "the dump", "name": "a name that looks secret:"}[kind]
    return f"{what} '{shown}'"
