"""The keys of a repository: made at first use, kept in two places, found again in either.

Each key lies in `<common git dir>/envhist/keys/<id>`, which no push, clone or bundle carries, and again in
`<configuration home>/git-envhist/keys/<id>`, so that a rebuilt container does not lose what was sealed; with
`envhist.keyIn=home` only there. `<common git dir>/envhist/keys/current` names the one that seals new files.

The configuration home holds the keys of all repositories of the user. Another repository can bring a ref, and with it
the id of a key, so only keys that this repository made or imported are taken from there (`keyorigins`). Reading never
writes a key.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol

from git_envhist.disk import Durability, lock_file, make_private, replace_file, sync_directory
from git_envhist.errors import Refused, SealingError
from git_envhist.lazy import dataclass, field, pattern
from git_envhist.platform import open_cloexec_guarded

# A directory of key files: the only code that touches a key on disk.
#
# A key file is named by the id of its key and holds two lines, `envhist-key <form>` and the key in hex. It is
# written beside its place, synced and renamed, so that a reader meets the whole file or none; it is for its owner's
# eyes only.

KEY_NAME = pattern(r"[0-9a-f]{12}(?:[0-9a-f]{20})?")
NEW = ".new-"
LOCK = "lock"
STALE_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """One directory in which keys are kept."""

    directory: str

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def ids(self) -> tuple[str, ...]:
        """The ids of the keys that have a file here."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return ()
        return tuple(sorted(name for name in names if KEY_NAME.fullmatch(name)))

    def read(self, name: str) -> bytes | None:
        """The bytes of a file here, or None where there is none; any other failure is the system's own."""
        return read_file(self.path(name))

    def write(self, name: str, content: bytes) -> None:
        """Put a file here so that it is whole, durable and private from the moment it has its name."""
        self._prepare()
        replace_key_file(self.path(name), content)

    def make_private(self, name: str | None = None) -> bool | None:
        """Close a file (or the directory) to others: None where it was, else whether that could be done."""
        path = self.directory if name is None else self.path(name)
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if not mode & 0o077:
                return None
            os.chmod(path, mode & 0o700)
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this directory; a place that takes no lock takes no key either, as storing will report."""
        try:
            make_private(self.directory)
            descriptor = open_cloexec_guarded(self.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            lock_file(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _prepare(self) -> None:
        make_private(self.directory)
        self.make_private()
        # The directories may be as new as the file: each lives in the one above it.
        parent = os.path.dirname(self.directory)
        for directory in (parent, os.path.dirname(parent)):
            sync_directory(directory)
        self._sweep()

    def _sweep(self) -> None:
        # What a killed writer left holds a whole secret. A younger file may belong to one that still lives.
        for name in os.listdir(self.directory):
            if name.startswith(NEW):
                path = self.path(name)
                try:
                    if os.stat(path).st_mtime < time.time() - STALE_SECONDS:
                        os.unlink(path)
                except OSError:
                    continue


def read_file(path: str) -> bytes | None:
    """Return the bytes of a small file, None where there is none; any other failure is the system's own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def replace_key_file(path: str, content: bytes) -> None:
    """Replace a file by one that its owner alone can read, durably."""
    replace_file(path, content, durability=Durability.FULL, unique=True)


# Keyed hashes (HMAC) by what the interpreter itself brings.
#
# `hmac` and `hashlib` load OpenSSL: 2 ms of every command that says who signed a moment, which has a few hundred bytes
# to hash. As the library's `random` does, the interpreter's own modules are asked first.

BLOCKS = {"sha256": 64, "sha512": 128}
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


def _found(name: str, *modules: str) -> Any:
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this Python has no {name}")


# Under their names of Python 3.12, of 3.11, and where an interpreter was built without.
_HASHES = {name: _found(name, "_sha2", f"_{name}", "hashlib") for name in BLOCKS}
try:
    _compare = _found("_compare_digest", "_operator")
except ImportError:
    _compare = _found("compare_digest", "hmac")


def keyed(key: bytes, data: bytes, name: str) -> bytes:
    """The HMAC of some data, by `sha256` or `sha512`."""
    new, block = _HASHES[name], BLOCKS[name]
    padded = (key if len(key) <= block else new(key).digest()).ljust(block, b"\0")
    inner = new(padded.translate(_INNER))
    inner.update(data)
    outer = new(padded.translate(_OUTER))
    outer.update(inner.digest())
    told: bytes = outer.digest()
    return told


def constant_time_equal(one: str, other: str) -> bool:
    """Whether two texts are one, in a time that says nothing of where they differ."""
    # As bytes: what somebody else wrote for a signature may be any text.
    same: bool = _compare(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
    return same


# One key: its id, the subkeys derived from it, and its form as a file and as a line of text.
#
# A key is 512 random bits and the id of the repository that made it. Everything is done with subkeys derived from both
# by a label, so that no two uses and no two repositories share one. The id of a key is a hash keyed by itself: it names
# the key and tells nothing about it. Keys of the first form have no repository, and ids of 48 bits.

SECRET_LENGTH, REPOSITORY_LENGTH = 64, 16
FIRST_FORM_LENGTH = 12
"""Of an id, in hex; ids of later keys are longer."""
FORMS = (SECRET_LENGTH, SECRET_LENGTH + REPOSITORY_LENGTH)
"""The lengths of the bytes of a key, by the number of its form, which begins at 1."""
FILE_HEAD = b"envhist-key "
OPENING_HEAD = b"envhist-open 1"
OPENING = (b"seal", b"place")
"""The labels of the subkeys that open what is sealed."""
OPENING_LENGTH = 64
TEXT_HEAD = "envhist-key-"


class SigningKey(Protocol):
    """The part of a sealing key that signing needs."""

    @property
    def id(self) -> str: ...

    def mac(self, data: bytes) -> str: ...


@dataclass(frozen=True, slots=True)
class Key:
    """One secret, its name, and what is derived from it."""

    id: str
    secret: bytes = field(repr=False)
    repository: bytes = field(default=b"", repr=False)
    """The id of the repository that made it; it is in no object, so it is part of the secret."""

    @classmethod
    def of(cls, material: bytes) -> Key:
        """Return the key that some bytes are: a secret, or a secret and a repository id."""
        if len(material) not in FORMS:
            raise SealingError(f"a key has {FORMS[0]} or {FORMS[1]} bytes, not '{len(material)}'")
        secret, repository = material[:SECRET_LENGTH], material[SECRET_LENGTH:]
        if not repository:
            return cls(keyed(secret, b"envhist key id", "sha512")[:6].hex(), secret)
        return cls(keyed(secret, b"envhist key id 2 " + repository, "sha512")[:16].hex(), secret, repository)

    @property
    def material(self) -> bytes:
        """The bytes from which `of` makes this key."""
        return self.secret + self.repository

    @property
    def form(self) -> int:
        return FORMS.index(len(self.material)) + 1

    def derive(self, label: bytes) -> bytes:
        """The subkey of 64 bytes for one use."""
        bound = b"2 " + self.repository + b" " if self.repository else b""
        return keyed(self.secret, b"envhist subkey " + bound + label, "sha512")

    def mac(self, data: bytes) -> str:
        """What only a holder of this key can write under some data, in hex."""
        return keyed(self.derive(b"mac"), data, "sha256").hex()


@dataclass(frozen=True, slots=True)
class OpeningKey:
    """The part of a key that its owner gives to recipients: it opens what the key sealed, and signs nothing."""

    id: str
    subkeys: tuple[bytes, ...] = field(repr=False)

    def derive(self, label: bytes) -> bytes:
        """Return the subkey of one of the `OPENING` uses."""
        if label not in OPENING:
            raise SealingError(f"the key '{self.id}' came wrapped for a recipient: it only opens")
        return self.subkeys[OPENING.index(label)]


def write_opening_key(key: Key) -> bytes:
    """Return the text that a recipient of a key gets."""
    lines = [b"%b %b" % (label, key.derive(label).hex().encode("ascii")) for label in OPENING]
    return b"\n".join([OPENING_HEAD, b"key " + key.id.encode("ascii"), *lines, b""])


def read_opening_key(text: bytes) -> OpeningKey:
    """Return the opening key of such a text; `SealingError` if it holds none."""
    first, *lines = text.decode("ascii", "replace").splitlines()[: len(OPENING) + 2] or [""]
    words = [line.partition(" ") for line in lines]
    names = [word.encode("ascii", "replace") for word, _, _ in words]
    if first.encode("ascii", "replace") != OPENING_HEAD or names != [b"key", *OPENING]:
        raise SealingError("this is no opening key", hint="a newer git-envhist may read it")
    try:
        subkeys = tuple(bytes.fromhex(value) for _, _, value in words[1:])
    except ValueError as odd:
        raise SealingError("the opening key is damaged") from odd
    if any(len(subkey) != OPENING_LENGTH for subkey in subkeys):
        raise SealingError("the opening key is damaged")
    return OpeningKey(words[0][2], subkeys)


def write_key_file(key: Key) -> bytes:
    """The bytes of a key's file."""
    return b"%b%d\n%b\n" % (FILE_HEAD, key.form, key.material.hex().encode("ascii"))


def read_key_file(content: bytes) -> Key:
    """The key that a file holds; `SealingError` where it holds none."""
    head, _, body = content.partition(b"\n")
    if head not in (FILE_HEAD + b"1", FILE_HEAD + b"2"):
        raise SealingError("this is not a key file")
    try:
        key = Key.of(bytes.fromhex(body.decode("ascii").strip()))
    except ValueError as broken:
        raise SealingError("the key file is damaged") from broken
    if head != b"%b%d" % (FILE_HEAD, key.form):
        raise SealingError("the key file is damaged")
    return key


def write_key_text(key: Key) -> str:
    """A key on one line, to be kept outside this machine; its id is the checksum."""
    letters = base64.b32encode(key.material).decode("ascii").rstrip("=").lower()
    return f"{TEXT_HEAD}{key.form}-{key.id}-{letters}"


def read_key_text(text: str) -> Key:
    """The key that such a line holds, however it was wrapped; `SealingError` tells a slip from a stranger."""
    if text.startswith(FILE_HEAD.decode("ascii")):
        return read_key_file(text.encode("utf-8"))
    plain = "".join(text.split()).lower()
    found = re.fullmatch(TEXT_HEAD + r"[12]-([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)", plain)
    if found is None:
        raise SealingError(
            "this is not an exported key",
            hint=f"it is one line that begins with {TEXT_HEAD}2-: 'git envlog key export'",
        )
    expected, letters = found.groups()
    try:
        key = Key.of(base64.b32decode(letters.upper() + "=" * (-len(letters) % 8)))
    except (ValueError, SealingError):
        key = None
    # The last letter can have bits to spare: compared as text, a slip in these is found too.
    if key is None or write_key_text(key) != plain:
        raise SealingError(
            f"the checksum of the exported key '{expected}' does not match: it was mistyped or cut short",
            hint="copy the whole line again, or print it again with 'git envlog key export'",
        )
    return key


# Which keys of the configuration home are a repository's own: `<common git dir>/envhist/repository`.
#
# The file has the ids of the repositories that made them, one per line, its own first, and the ids of keys of the first
# form as `key <id>`.

REPOSITORY = "repository"
FIRST_FORM = "key "
LINE = pattern(rf"(?:{FIRST_FORM})?[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of the keys that a repository made or imported."""

    common_state: str

    @property
    def own(self) -> str | None:
        """The id of this repository, in hex; None before its first key."""
        return next((line for line in self._lines() if not line.startswith(FIRST_FORM)), None)

    def may_hold(self, key_id: str, current_id: str | None) -> bool:
        """Return whether a key of this id, in the configuration home, can be one of these."""
        return (
            len(key_id) != FIRST_FORM_LENGTH or key_id == current_id or FIRST_FORM + key_id in self._lines()
        )

    def hold(self, key: Key) -> bool:
        """Return whether a key from there, which may be one of these, is one."""
        return not key.repository or key.repository.hex() in self._lines()

    def remember(self, key: Key) -> None:
        """Write the origin of a key that was made or imported."""
        lines, line = self._lines(), key.repository.hex() if key.repository else FIRST_FORM + key.id
        if line not in lines:
            with suppress(OSError):  # its copy in the repository is found all the same
                self._keep_damaged()
                data = "".join(f"{one}\n" for one in (*lines, line)).encode("ascii")
                replace_file(self._path, data, durability=Durability.FULL)

    @property
    def _path(self) -> str:
        return os.path.join(self.common_state, REPOSITORY)

    def _lines(self) -> list[str]:
        """Return the lines that are ids; what damaged the file is passed over."""
        return [line for line in self._read() if LINE.fullmatch(line)]

    def _read(self) -> list[str]:
        with suppress(OSError):
            return (read_file(self._path) or b"").decode("ascii", "replace").splitlines()
        return []

    def _keep_damaged(self) -> None:
        """Rename a file with other lines than ids before it is replaced."""
        if len(self._read()) != len(self._lines()):
            os.replace(self._path, f"{self._path}.damaged")


CURRENT = "current"
USED = "used"
"""Exists once something was sealed and its owner was told about the key."""
NO_OTHER_COPY = "'git envlog key import' takes a key from a backup"
HOME = "home"
"""The value of `envhist.keyIn` that keeps keys out of the repository."""


class Received(Protocol):
    """Keys of others that came wrapped for a recipient."""

    def find(self, key_id: str) -> OpeningKey | None:
        """Return the key of an id; None if none came that a private key of this user opens."""
        ...

    def problem(self, key_id: str) -> str | None:
        """Return why a key that came does not open; None if none came."""
        ...


class KeyRing:
    """The keys of one repository."""

    def __init__(
        self,
        common_state: str,
        config_home: str,
        key_in: str = "",
        received: Callable[[], Received] | None = None,
    ) -> None:
        """`key_in`: `home` keeps the keys in the configuration home alone; `received`: keys wrapped for this user."""
        self._receive = received
        self._came: Received | None = None
        self._common_state = common_state
        self.ours = KeyDirectory(os.path.join(common_state, "keys"))
        self._origins = Origins(common_state)
        self.backup = KeyDirectory(os.path.join(config_home, "git-envhist", "keys"))
        self._kept_in = (self.backup,) if key_in == HOME else (self.ours, self.backup)
        self.warnings: list[str] = []
        self.made: Key | None = None
        """The key that this ring made, where there was none: its owner wants to know how to back it up."""
        self._known: dict[str, Key] = {}
        self._unreadable: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self._current: Key | None = None

    @property
    def places(self) -> tuple[KeyDirectory, KeyDirectory]:
        return self.ours, self.backup

    def current(self) -> Key:
        """The key that seals new files; the first use makes it, in both places."""
        if self._current is None:
            self._current = self._chosen()
        if self._current is None:
            with self.ours.locked():
                # Another process may have been quicker: all of them must end with one key.
                self._current = self._chosen() or self._adopt() or self._make()
        self._complete(self._current)
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
        """Return the key of an id that this repository made or imported, from either place."""
        if not KEY_NAME.fullmatch(key_id):
            return None
        if key_id not in self._known:
            key = self._read(self.ours, key_id) or self._from_backup(key_id)
            if key is None:
                return None
            self._known[key_id] = key
        return self._known[key_id]

    def _from_backup(self, key_id: str) -> Key | None:
        if not self._origins.may_hold(key_id, self._current_name()):
            return None
        key = self._read(self.backup, key_id)
        return key if key is not None and self._origins.hold(key) else None

    def _current_name(self) -> str | None:
        with suppress(SealingError):
            return self.current_id()
        return None

    def opening(self, key_id: str) -> Key | OpeningKey | None:
        """Return the key that opens what an id sealed; one that came wrapped for this user only opens."""
        key = self.get(key_id)
        received = self._received() if key is None and KEY_NAME.fullmatch(key_id) else None
        return received.find(key_id) if received is not None else key

    def _received(self) -> Received | None:
        if self._came is None and self._receive is not None:
            self._came = self._receive()
        return self._came

    def to_open(self, key_id: str) -> Key | OpeningKey | None:
        """Return the same; `SealingError` if there is such a key, and it cannot be used."""
        key = self.opening(key_id)
        if key is not None:
            return key
        problem = self._damaged.get(key_id) or self._unreadable.get(key_id)
        if problem is not None:
            raise SealingError(f"{problem}: what it sealed cannot be opened", hint=NO_OTHER_COPY)
        if key_id in self.backup.ids():
            raise SealingError(
                f"the key '{key_id}' is not here: this repository neither made nor imported it",
                hint=f"if you trust its repository: git envlog key import '{self.backup.path(key_id)}'",
            )
        received = self._received() if KEY_NAME.fullmatch(key_id) else None
        wrapped = received.problem(key_id) if received is not None else None
        if wrapped is not None:
            raise SealingError(
                wrapped, hint="'git envlog key identity' prints your public key, for the owner of the history"
            )
        return None

    def all(self) -> tuple[Key, ...]:
        """Every key of this repository; those of others, in the backup place, stay there."""
        ids = sorted({*self.ours.ids(), *self.backup.ids()})
        return tuple(key for key_id in ids if (key := self.get(key_id)) is not None)

    def made_here(self) -> tuple[str, ...]:
        """Return the ids of the keys that this repository made, wherever they are kept."""
        own = self._origins.own
        return tuple(key.id for key in self.all() if key.repository and key.repository.hex() == own)

    def use(self, key: Key) -> None:
        """Seal new files with this key from now on."""
        with self.ours.locked():
            self._store(key)
            self._choose(key)

    def to_share(self) -> tuple[Key, ...]:
        """Return the keys that recipients get: those made here, and the one that seals new files."""
        wanted = {*self.made_here(), *filter(None, [self._current_name()])}
        return tuple(key for key in self.all() if key.id in wanted)

    def recipients(self) -> tuple[str, ...]:
        """Return the lines of the list of recipients; `SealingError` if no key of this repository signed it."""
        from git_envhist.secrets.recipients import read_recipients  # loaded late: keeps envlog fast

        return read_recipients(self._common_state, self.get)

    def set_recipients(
        self, change: Callable[[tuple[str, ...]], tuple[str, ...]], *, reset: bool = False
    ) -> None:
        """Change the list of recipients; `reset`: begin with an empty one."""
        from git_envhist.secrets.recipients import write_recipients  # loaded late: likewise

        key = self.current()
        with self.ours.locked():
            write_recipients(self._common_state, change(() if reset else self.recipients()), key)

    def renew(self) -> Key:
        """Make a new key and seal new files with it; older keys stay, to open what they sealed."""
        with self.ours.locked():
            return self._make()

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
        with self.ours.locked():
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
        newest = max(keys, key=lambda key: (self._changed(key.id), key.id))
        self._choose(newest)
        return newest

    def _make(self) -> Key:
        own = self._origins.own
        repository = bytes.fromhex(own) if own is not None else os.urandom(REPOSITORY_LENGTH)
        key = Key.of(os.urandom(SECRET_LENGTH) + repository)
        self._store(key)
        self._choose(key)
        self.made = key
        return key

    def _changed(self, key_id: str) -> int:
        for place in self.places:
            with suppress(OSError):
                return os.stat(place.path(key_id)).st_mtime_ns
        return 0

    def _store(self, key: Key) -> None:
        self._refuse_other(key)
        self._origins.remember(key)
        failures = []
        for place in self._kept_in:
            try:
                place.write(key.id, write_key_file(key))
            except OSError as failure:
                failures.append(f"cannot keep the key '{key.id}' in '{place.directory}': {failure.strerror}")
        if len(failures) == len(self._kept_in):
            raise SealingError("; ".join(failures), hint="without a key, secret files stay out of a snapshot")
        for text in failures:
            self._warn(f"{text}: there is one copy of it, 'git envlog key export' makes another")
        self._known[key.id] = key

    def _refuse_other(self, key: Key) -> None:
        """Refuse a key whose id is that of another one, which it would overwrite."""
        for place in self.places:
            with suppress(OSError, SealingError):
                other = read_key_file(place.read(key.id) or b"")
                if other.id == key.id and other != key:
                    raise Refused(
                        f"another key has the id '{key.id}': this one was made to replace it",
                        hint="do not use it, and ask where it comes from",
                    )

    def _choose(self, key: Key) -> None:
        self._current = key
        try:
            self.ours.write(CURRENT, key.id.encode("ascii") + b"\n")
        except OSError as failure:
            self._warn(f"cannot write '{self.ours.path(CURRENT)}': {failure.strerror}")

    def _read(self, place: KeyDirectory, key_id: str) -> Key | None:
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

    def _close_to_others(self, place: KeyDirectory, key_id: str) -> None:
        closed = place.make_private(key_id)
        if closed is not None:
            what = "it is closed now" if closed else "it could not be closed"
            self._warn(f"the key file '{place.path(key_id)}' was open to other users: {what}")

    def _complete(self, key: Key) -> None:
        """Write the copies of the key in use that are missing, and take keys out of the repository if so configured."""
        self._origins.remember(key)
        for place in self._kept_in:
            if key.id not in place.ids() or self._read(place, key.id) is None:
                with suppress(OSError):  # a second copy is a comfort; the key itself is at hand
                    place.write(key.id, write_key_file(key))
        if self.ours not in self._kept_in:
            for key_id in self.ours.ids():
                self._move_home(key_id)

    def _move_home(self, key_id: str) -> None:
        key = self.get(key_id)
        if key is None:
            return
        try:
            self._store(key)
            os.unlink(self.ours.path(key_id))
        except (OSError, SealingError):
            self._warn(f"the key '{key_id}' stays in '{self.ours.directory}': it cannot be moved")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
