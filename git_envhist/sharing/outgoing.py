"""What leaves with a push, as its owner wants to know it: how much of what, in the clear, and no token among it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from git_envhist.capture.seal import MAGIC as SEALED
from git_envhist.capture.secrets import scans_content
from git_envhist.capture.tokens import TOKENS, URL_PASSWORD, URL_WHAT, find_tokens
from git_envhist.history.classes import CLASSES, DATABASES, class_of
from git_envhist.model import SQLITE_HEADER
from git_envhist.model.sharing import Look, Share, Token
from git_envhist.sharing.words import secret_in_words
from git_envhist.store.git import Git
from git_envhist.store.layout import DOTGIT, RESERVED
from git_envhist.store.remoteload import Outgoing, contents, files_of_pieces, piece_of, shown_place

SEALED_CLASS, REPOSITORIES, RECORDS = "sealed", "repositories", "records"
ORDER = (*CLASSES, REPOSITORIES, RECORDS, SEALED_CLASS)
"""`records`: what we write about them: manifests, lists, notes."""
OVERLAP = 4096
"""A token may stand across the cut between two pieces of a file."""
NESTED = RESERVED + b"/" + DOTGIT + b"/"


def look_through(git: Git, leaving: Sequence[Outgoing], largest: int) -> Look:
    """Read all that leaves once. An object larger than `largest` is not looked into: it is refused for its size."""
    big = files_of_pieces(git, leaving)
    tally = _Tally()
    for path, size in big.values():
        tally.add(class_of(path), path, size)
    wanted = [one for one in leaving if one.kind in ("blob", "commit") and one.size <= largest]
    tail, whose = b"", None
    for one, data in contents(git, wanted):
        piece = piece_of(one)
        path = big.get(piece, (one.path, 0))[0] if piece is not None else one.path
        sealed = data.startswith(SEALED)
        tail, whose = (tail if piece is not None and piece == whose else b""), piece
        if piece is None and one.kind == "blob":
            tally.add(_class(one, path, data, sealed), path, one.size)
        if not sealed and scans_content(path.rpartition(b"/")[0]):
            tally.find(path if piece is not None else shown_place(one, data), tail + data)
        tally.add_word(None if sealed else secret_in_words(one, data))
        tail = data[-OVERLAP:] if piece is not None else b""
    return tally.look()


def too_large(leaving: Iterable[Outgoing], largest: int) -> list[Outgoing]:
    """The objects that hosts refuse for their size."""
    return [one for one in leaving if one.size > largest]


class _Tally:
    def __init__(self) -> None:
        self._shares: dict[str, tuple[int, int]] = {}
        self._databases: dict[bytes, int] = {}
        self._tokens: dict[tuple[bytes, str], None] = {}

    def add(self, name: str, path: bytes, size: int) -> None:
        files, total = self._shares.get(name, (0, 0))
        self._shares[name] = (files + 1, total + size)
        if name == DATABASES:
            self._databases[path] = max(size, self._databases.get(path, 0))

    def find(self, path: bytes, data: bytes) -> None:
        for kind in find_tokens(data):
            self._tokens[(path, URL_WHAT if kind == URL_PASSWORD else TOKENS[kind][0])] = None

    def add_word(self, found: Token | None) -> None:
        if found is not None:
            self._tokens[(found.path, found.kind)] = None

    def look(self) -> Look:
        shares = tuple(Share(name, *self._shares[name]) for name in ORDER if name in self._shares)
        tokens = tuple(Token(path, kind) for path, kind in self._tokens)
        return Look(shares, tuple(sorted(self._databases.items())), tokens)


def _class(one: Outgoing, path: bytes, data: bytes, sealed: bool) -> str:
    if sealed:
        return SEALED_CLASS
    if one.place.startswith(NESTED):
        return REPOSITORIES
    if not one.place or one.place.startswith(RESERVED + b"/"):
        return RECORDS
    # Its first bytes tell a database by whatever name it goes.
    return DATABASES if data.startswith(SQLITE_HEADER) else class_of(path)
