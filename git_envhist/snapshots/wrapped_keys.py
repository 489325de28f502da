"""Find and open keys of a history that are encrypted for recipients, in files of the notes tree.

`keys/<id of the key>` is an armored age file that contains an opening key; `keys/list` is a keyed digest of the
recipients and keys they were written for. They move with the notes, so a push sends them and a fetch brings them. A
server can store any key there: a key opened this way adds no trust, because an opening key signs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from git_envhist.errors import EnvhistError, SealingError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, Repository
from git_envhist.lazy import pattern
from git_envhist.secrets.key_text import read_opening_key
from git_envhist.secrets.keys import Key, OpeningKey
from git_envhist.snapshots.fetched_store import FetchedStore, without_fetched_objects

DIRECTORY = b"keys"
LIST = b"keys/list"
MAX_SIZE = 1 << 20
LIST_FORM = pattern(rb"envhist-recipients 1\nmac [0-9a-f]{64}\n")


class Opener(Protocol):
    """The private keys of this user."""

    def open(self, data: bytes) -> bytes | None:
        """Return the contents of an age file, or None if it was not encrypted for this user."""
        ...

    @property
    def problems(self) -> tuple[str, ...]: ...


def path_of(key_id: str) -> bytes:
    """Return the path of a wrapped key in the notes tree."""
    return DIRECTORY + b"/" + key_id.encode("ascii")


def write_list(key: Key, keys: Iterable[Key], recipients: Iterable[str]) -> bytes:
    """Return the list file; it changes if a key or a recipient does."""
    lines = ["wrapped", *sorted(one.id for one in keys), "for", *sorted(recipients)]
    mac = key.mac("\n".join(lines).encode("utf-8"))
    return f"envhist-recipients 1\nmac {mac}\n".encode("ascii")


class WrappedKeys:
    """Finds wrapped keys in the notes and opens them with the private keys of this user."""

    def __init__(self, repository: Repository, opener: Callable[[], Opener]) -> None:
        self._repository = repository
        self._opener = opener
        self._known: dict[str, OpeningKey | None] = {}
        self._problems: dict[str, str] = {}

    def find(self, key_id: str) -> OpeningKey | None:
        """Return the key of an id, or None if none was found that a private key of this user opens."""
        if key_id not in self._known:
            self._known[key_id] = self._open(key_id)
        return self._known[key_id]

    def problem(self, key_id: str) -> str | None:
        """Return why a found key does not open, or None if none was found."""
        self.find(key_id)
        return self._problems.get(key_id)

    def _open(self, key_id: str) -> OpeningKey | None:
        opener: Opener | None = None
        for data in self._wrapped(key_id):
            opener = opener or self._opener()
            reasons = f" ({'; '.join(opener.problems)})" if opener.problems else ""
            self._problems[key_id] = f"the key '{key_id}' is encrypted, but not for a key of yours{reasons}"
            try:
                text = opener.open(data)
                key = read_opening_key(text) if text is not None else None
            except SealingError as error:
                self._problems[key_id] = f"the wrapped key '{key_id}': {error.message}"
                continue
            if key is not None and key.id == key_id:
                return key
        return None

    def _wrapped(self, key_id: str) -> Iterator[bytes]:
        repository = without_fetched_objects(self._repository)
        fetched = FetchedStore.of(repository)
        for git in (repository.git, *([fetched.git] if fetched.exists else [])):
            yield from _in_notes(git, key_id)


def _in_notes(git: Git, key_id: str) -> Iterator[bytes]:
    refs = git.ask("for-each-ref", "--format=%(refname)", NOTES_REFS).out.splitlines()
    with CatFile(git, max_size=MAX_SIZE) as reader:
        for ref in refs:
            try:
                found = reader.read(ref + b":" + path_of(key_id))
            except EnvhistError:
                continue
            if found is not None and found.kind == "blob":
                yield found.data
