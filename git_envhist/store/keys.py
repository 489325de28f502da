"""The keys that seal secret files: made at first use, kept in two places, found again in either.

A key is 512 random bits. Everything is done with subkeys derived from it by a label, so that no two uses ever
share one. Its id is a hash keyed by itself: it names the key and tells nothing about it.

Each key lies in `<common git dir>/envhist/keys/<id>`, which no push, clone or bundle carries, and again in
`<configuration home>/git-envhist/keys/<id>`, so that neither a lost clone nor a rebuilt container loses what
was sealed. `<common git dir>/envhist/keys/current` names the one that seals new files.
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from git_envhist.errors import SealingError
from git_envhist.store.keyfiles import KEY_NAME, KeyPlace
from git_envhist.store.locks import lock_file, make_private
from git_envhist.store.mac import keyed
from git_envhist.system import open_ours
from git_envhist.values import dataclass, field

SECRET_LENGTH = 64
FILE_HEAD = b"envhist-key 1\n"
TEXT_HEAD = "envhist-key-1-"
CURRENT = "current"
USED = "used"
"""Stands beside the keys once something was sealed and its owner was told about the key."""
LOCK = "lock"
NO_OTHER_COPY = "'git envlog key import' takes a key from a backup"


@dataclass(frozen=True, slots=True)
class Key:
    """One secret, its name, and what is derived from it."""

    id: str
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> Key:
        if len(secret) != SECRET_LENGTH:
            raise SealingError(f"a key has {SECRET_LENGTH} bytes, not '{len(secret)}'")
        return cls(keyed(secret, b"envhist key id", "sha512")[:6].hex(), secret)

    def derive(self, label: bytes) -> bytes:
        """The subkey of 64 bytes for one use."""
        return keyed(self.secret, b"envhist subkey " + label, "sha512")

    def mac(self, data: bytes) -> str:
        """What only a holder of this key can write under some data, in hex."""
        return keyed(self.derive(b"mac"), data, "sha256").hex()


def write_key_file(key: Key) -> bytes:
    """The bytes of a key's file."""
    return FILE_HEAD + key.secret.hex().encode("ascii") + b"\n"


def read_key_file(content: bytes) -> Key:
    """The key that a file holds; `SealingError` where it holds none."""
    if not content.startswith(FILE_HEAD):
        raise SealingError("this is not a key file")
    try:
        return Key.of(bytes.fromhex(content.removeprefix(FILE_HEAD).decode("ascii").strip()))
    except ValueError as broken:
        raise SealingError("the key file is damaged") from broken


def write_key_text(key: Key) -> str:
    """A key on one line, to be kept outside this machine; its id is the checksum."""
    return f"{TEXT_HEAD}{key.id}-{base64.b32encode(key.secret).decode('ascii').rstrip('=').lower()}"


def read_key_text(text: str) -> Key:
    """The key that such a line holds, however it was wrapped; `SealingError` tells a slip from a stranger."""
    if text.startswith(FILE_HEAD.decode("ascii")):
        return read_key_file(text.encode("utf-8"))
    plain = "".join(text.split()).lower()
    found = re.fullmatch(TEXT_HEAD + r"([0-9a-f]{12})-([a-z2-7]+)", plain)
    if found is None:
        raise SealingError(
            "this is not an exported key",
            hint=f"it is one line that begins with {TEXT_HEAD}: 'git envlog key export'",
        )
    expected, letters = found.groups()
    try:
        key = Key.of(base64.b32decode(letters.upper() + "=" * (-len(letters) % 8)))
    except (ValueError, SealingError):
        key = None
    # The last letter has three bits to spare: compared as text, a slip in these is found too.
    if key is None or write_key_text(key) != plain:
        raise SealingError(
            f"the checksum of the exported key '{expected}' does not match: it was mistyped or cut short",
            hint="copy the whole line again, or print it again with 'git envlog key export'",
        )
    return key


class KeyRing:
    """The keys of one repository."""

    def __init__(self, common_state: str, config_home: str) -> None:
        self.ours = KeyPlace(os.path.join(common_state, "keys"))
        self.backup = KeyPlace(os.path.join(config_home, "git-envhist", "keys"))
        self.warnings: list[str] = []
        self.made: Key | None = None
        """The key that this ring made, where there was none: its owner wants to know how to back it up."""
        self._known: dict[str, Key] = {}
        self._unreadable: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self._current: Key | None = None

    @property
    def places(self) -> tuple[KeyPlace, KeyPlace]:
        return self.ours, self.backup

    def current(self) -> Key:
        """The key that seals new files; the first use makes it, in both places."""
        if self._current is None:
            self._current = self._chosen()
        if self._current is None:
            with self._locked():
                # Another process may have been quicker: all of them must end with one key.
                self._current = self._chosen() or self._adopt() or self._make()
        return self._current

    def first_use(self) -> bool:
        """Whether nothing was sealed here before; from now on something was."""
        with suppress(OSError):
            if self.ours.read(USED) is None:
                self.ours.write(USED, b"")
                return True
        return False

    def current_id(self) -> str | None:
        """The id that `current` names, whether or not its key is still there; nothing is made."""
        try:
            content = self.ours.read(CURRENT)
        except OSError as failure:
            raise SealingError(f"cannot read '{self.ours.path(CURRENT)}': {failure.strerror}") from failure
        name = (content or b"").decode("ascii", "replace").strip()
        return name if KEY_NAME.fullmatch(name) else None

    def get(self, key_id: str) -> Key | None:
        """The key of an id, wherever a copy is left; what one place lost is put back from the other."""
        if not KEY_NAME.fullmatch(key_id):
            return None
        if key_id not in self._known:
            copies = [(place, self._read(place, key_id)) for place in self.places]
            key = next((copy for _, copy in copies if copy is not None), None)
            if key is None:
                return None
            self._known[key_id] = key
            self._put_back(key, [place for place, copy in copies if copy is None])
        return self._known[key_id]

    def to_open(self, key_id: str) -> Key | None:
        """The same for whoever opens what it sealed: a key that is there and cannot be read is told as that."""
        key = self.get(key_id)
        problem = self._damaged.get(key_id) or self._unreadable.get(key_id)
        if key is None and problem is not None:
            raise SealingError(f"{problem}: what it sealed cannot be opened", hint=NO_OTHER_COPY)
        return key

    def all(self) -> tuple[Key, ...]:
        """Every key of this repository; those of others, in the backup place, stay there."""
        return tuple(key for key_id in self.ours.ids() if (key := self.get(key_id)) is not None)

    def use(self, key: Key) -> None:
        """Seal new files with this key from now on."""
        with self._locked():
            self._store(key)
            self._choose(key)

    def export(self, key_id: str, write: Callable[[Key], str] | None = None) -> str:
        """A key on one line, for a backup or another machine; `write`: in another form than the plain one."""
        key = self.get(key_id)
        if key is None:
            raise SealingError(
                f"there is no key '{key_id}' here", hint="'git envlog key show' lists the keys"
            )
        return (write or write_key_text)(key)

    def import_(self, text: str) -> Key:
        """Take in an exported key; where none is in use yet, it seals new files from now on."""
        key = read_key_text(text)
        with self._locked():
            self._store(key)
            if self._chosen() is None:
                self._choose(key)
        return key

    def _chosen(self) -> Key | None:
        key_id = self.current_id()
        if key_id is None:
            return None
        key = self.get(key_id)
        if key is None and key_id in self._unreadable:
            # A key that is there and cannot be read is not lost: a new one beside it would only hide the mistake.
            raise SealingError(
                self._unreadable[key_id], hint="is it another user's? 'git envlog key import' takes a copy"
            )
        return key

    def _adopt(self) -> Key | None:
        # A process that was killed between storing its key and naming it leaves a good key that nobody chose.
        lost = self.current_id()
        if lost is not None:
            self._warn(f"the key '{lost}' is lost: what it sealed cannot be opened; {NO_OTHER_COPY}")
            return None
        keys = self.all()
        if not keys:
            return None
        newest = max(keys, key=lambda key: (os.stat(self.ours.path(key.id)).st_mtime_ns, key.id))
        self._choose(newest)
        return newest

    def _make(self) -> Key:
        key = Key.of(os.urandom(SECRET_LENGTH))
        self._store(key)
        self._choose(key)
        self.made = key
        return key

    def _store(self, key: Key) -> None:
        failures = []
        for place in self.places:
            try:
                place.write(key.id, write_key_file(key))
            except OSError as failure:
                failures.append(f"cannot keep the key '{key.id}' in '{place.directory}': {failure.strerror}")
        if len(failures) == len(self.places):
            raise SealingError("; ".join(failures), hint="without a key, secret files stay out of a snapshot")
        for text in failures:
            self._warn(f"{text}: there is one copy of it, 'git envlog key export' makes another")
        self._known[key.id] = key

    def _choose(self, key: Key) -> None:
        self._current = key
        try:
            self.ours.write(CURRENT, key.id.encode("ascii") + b"\n")
        except OSError as failure:
            self._warn(f"cannot write '{self.ours.path(CURRENT)}': {failure.strerror}")

    def _read(self, place: KeyPlace, key_id: str) -> Key | None:
        try:
            content = place.read(key_id)
        except OSError as failure:
            self._unreadable[key_id] = f"cannot read the key file '{place.path(key_id)}': {failure.strerror}"
            self._warn(self._unreadable[key_id])
            return None
        if content is None:
            return None
        self._close_to_others(place, key_id)
        with suppress(SealingError):
            key = read_key_file(content)
            if key.id == key_id:
                return key
        self._damaged[key_id] = f"the key file '{place.path(key_id)}' is damaged"
        self._warn(self._damaged[key_id])
        return None

    def _close_to_others(self, place: KeyPlace, key_id: str) -> None:
        closed = place.make_private(key_id)
        if closed is not None:
            what = "it is closed now" if closed else "it could not be closed"
            self._warn(f"the key file '{place.path(key_id)}' was open to other users: {what}")

    def _put_back(self, key: Key, places: list[KeyPlace]) -> None:
        for place in places:
            with suppress(OSError):  # a second copy is a comfort; the key itself is at hand
                place.write(key.id, write_key_file(key))

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = self._open_lock()
        if descriptor is None:
            yield
            return
        try:
            lock_file(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int | None:
        try:
            make_private(self.ours.directory)
            return open_ours(self.ours.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None  # a place that takes no lock takes no key either: storing will say so
