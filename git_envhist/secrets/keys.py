"""The keys of a repository: lookup, HMAC, and the key in use.

A key is created at its first use and stored twice: in `<common git dir>/envhist/keys/<id>`, which no push, clone or
bundle contains, and in `<configuration home>/git-envhist/keys/<id>`, so that a rebuilt container can still open
sealed files; with `envhist.keyIn=home` only there. `<common git dir>/envhist/keys/current` names the key that seals
new files.

The configuration home contains the keys of all repositories of the user. A ref from another repository could name any
key id, so only keys that this repository created or imported are read from there (`Origins`). Reading never writes a
key.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any, Protocol

from git_envhist.disk import Durability, read_exactly, replace_file
from git_envhist.errors import Refused, SealingError
from git_envhist.lazy import dataclass, field, pattern

# Directories of key files. A key file is named by the id of its key and contains two lines, `envhist-key <form>` and
# the key in hex. `key_files` writes it atomically, readable by its owner only.

KEY_NAME = pattern(r"[0-9a-f]{12}(?:[0-9a-f]{20})?")


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """A directory of key files."""

    directory: str
    is_users: bool = False
    """Whether it is in the configuration home, not in a repository."""

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the keys that have a file here."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return ()
        return tuple(sorted(name for name in names if KEY_NAME.fullmatch(name)))

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist. Other errors are raised."""
        return read_file(self.path(name))

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically and durably, readable by its owner only."""
        from git_envhist.secrets.write_keys import write_key_file  # loaded late: most commands only read keys

        write_key_file(self, name, content)

    def locked(self) -> AbstractContextManager[None]:
        """Lock the directory while keys are created or changed."""
        from git_envhist.secrets.write_keys import lock_keys  # loaded late: most commands only read keys

        return lock_keys(self)

    def make_private(self, name: str | None = None) -> bool | None:
        """Deny others access to a file or the directory. Return None if it was private, else whether it worked."""
        path = self.directory if name is None else self.path(name)
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if not mode & 0o077:
                return None
            if self.is_users:
                from git_envhist.directories_of_others import (
                    require_own,  # loaded late: files of keys are private
                )

                require_own(path)
            os.chmod(path, mode & 0o700)
        except OSError:
            return False
        return True


def read_file(path: str) -> bytes | None:
    """Return the bytes of a small file, or None if it does not exist. Other errors are raised."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return read_exactly(descriptor, 1 << 16, 0)
    finally:
        os.close(descriptor)


# HMAC with the hash modules built into the interpreter: `hmac` and `hashlib` load OpenSSL, which takes 2 ms in every
# command that checks the signature of a snapshot. The standard library's `random` does the same.

BLOCKS = {"sha256": 64, "sha512": 128}
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


def _first_of(name: str, *modules: str) -> Any:
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this Python has no {name}")


# Their names in Python 3.12, in 3.11, and in interpreters built without them.
_HASHES = {name: _first_of(name, "_sha2", f"_{name}", "hashlib") for name in BLOCKS}
try:
    _compare = _first_of("_compare_digest", "_operator")
except ImportError:
    _compare = _first_of("compare_digest", "hmac")


def compute_hmac(key: bytes, data: bytes, name: str) -> bytes:
    """Return the HMAC of data by `sha256` or `sha512`."""
    new, block = _HASHES[name], BLOCKS[name]
    padded = (key if len(key) <= block else new(key).digest()).ljust(block, b"\0")
    inner = new(padded.translate(_INNER))
    inner.update(data)
    outer = new(padded.translate(_OUTER))
    outer.update(inner.digest())
    result: bytes = outer.digest()
    return result


def constant_time_equal(one: str, other: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ."""
    # As bytes: the other text may be any string from a repository.
    same: bool = _compare(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
    return same


# A key is 512 random bits and the id of the repository that created it. Each use has a subkey derived from both and a
# label, so that no two uses and no two repositories share one. The id of a key is a hash keyed by itself: it
# identifies the key and reveals nothing about it. Keys of the first form have no repository, and ids of 48 bits.

SECRET_LENGTH, REPOSITORY_LENGTH = 64, 16
FIRST_FORM_LENGTH = 12
"""Length of an id of the first form, in hex; ids of later forms are longer."""
FORMS = (SECRET_LENGTH, SECRET_LENGTH + REPOSITORY_LENGTH)
"""The lengths of a key's bytes, by the number of its form, starting at 1."""
FILE_HEAD = b"envhist-key "
OPENING = (b"seal", b"place")
"""The labels of the subkeys that open sealed content."""


class SigningKey(Protocol):
    """The part of a sealing key that signing needs."""

    @property
    def id(self) -> str: ...

    def mac(self, data: bytes) -> str: ...


@dataclass(frozen=True, slots=True)
class Key:
    """A secret, its id, and the derivation of subkeys."""

    id: str
    secret: bytes = field(repr=False)
    repository: bytes = field(default=b"", repr=False)
    """The id of the repository that created it. No object contains it, so it is part of the secret."""

    @classmethod
    def of(cls, material: bytes) -> Key:
        """Return the key with these bytes: a secret, or a secret and a repository id."""
        if len(material) not in FORMS:
            raise SealingError(f"a key has {FORMS[0]} or {FORMS[1]} bytes, not '{len(material)}'")
        secret, repository = material[:SECRET_LENGTH], material[SECRET_LENGTH:]
        if not repository:
            return cls(compute_hmac(secret, b"envhist key id", "sha512")[:6].hex(), secret)
        return cls(
            compute_hmac(secret, b"envhist key id 2 " + repository, "sha512")[:16].hex(), secret, repository
        )

    @property
    def material(self) -> bytes:
        """The bytes from which `of` creates this key."""
        return self.secret + self.repository

    @property
    def form(self) -> int:
        return FORMS.index(len(self.material)) + 1

    def derive(self, label: bytes) -> bytes:
        """Return the subkey of 64 bytes for one use."""
        bound = b"2 " + self.repository + b" " if self.repository else b""
        return compute_hmac(self.secret, b"envhist subkey " + bound + label, "sha512")

    def mac(self, data: bytes) -> str:
        """Return the MAC of data in hex, as only an owner of this key can compute it."""
        return compute_hmac(self.derive(b"mac"), data, "sha256").hex()


@dataclass(frozen=True, slots=True)
class OpeningKey:
    """The part of a key that its owner gives to recipients: it opens sealed content and cannot sign."""

    id: str
    subkeys: tuple[bytes, ...] = field(repr=False)

    def derive(self, label: bytes) -> bytes:
        """Return the subkey of one of the `OPENING` uses."""
        if label not in OPENING:
            raise SealingError(f"the key '{self.id}' was received as a recipient: it can only open")
        return self.subkeys[OPENING.index(label)]


def format_key_file(key: Key) -> bytes:
    """Return the bytes of a key's file."""
    return b"%b%d\n%b\n" % (FILE_HEAD, key.form, key.material.hex().encode("ascii"))


def read_key_file(content: bytes) -> Key:
    """Parse a key file. Raise `SealingError` if it is malformed."""
    head, _, body = content.partition(b"\n")
    if head not in (FILE_HEAD + b"1", FILE_HEAD + b"2"):
        raise SealingError("not a key file")
    try:
        key = Key.of(bytes.fromhex(body.decode("ascii").strip()))
    except ValueError as broken:
        raise SealingError("the key file is damaged") from broken
    if head != b"%b%d" % (FILE_HEAD, key.form):
        raise SealingError("the key file is damaged")
    return key


# The origins of keys: `<common git dir>/envhist/repository` lists the repositories with keys that this one may read
# from the configuration home, one id per line, its own first, and keys of the first form as `key <id>`.

REPOSITORY = "repository"
FIRST_FORM = "key "
LINE = pattern(rf"(?:{FIRST_FORM})?[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of the keys that a repository created or imported."""

    common_state: str

    @property
    def own(self) -> str | None:
        """The id of this repository in hex, or None before its first key."""
        return next((line for line in self._lines() if not line.startswith(FIRST_FORM)), None)

    def may_include(self, key_id: str, current_id: str | None) -> bool:
        """Return whether a key of this id in the configuration home may belong to this repository."""
        return (
            len(key_id) != FIRST_FORM_LENGTH or key_id == current_id or FIRST_FORM + key_id in self._lines()
        )

    def records_key(self, key: Key) -> bool:
        """Return whether a key from the configuration home belongs to this repository."""
        return not key.repository or key.repository.hex() in self._lines()

    def add(self, key: Key) -> None:
        """Add the origin of a key that was created or imported."""
        lines, line = self._lines(), key.repository.hex() if key.repository else FIRST_FORM + key.id
        if line not in lines:
            with suppress(OSError):  # the copy of the key in the repository is found anyway
                self._keep_damaged()
                data = "".join(f"{one}\n" for one in (*lines, line)).encode("ascii")
                replace_file(self._path, data, durability=Durability.FULL)

    @property
    def _path(self) -> str:
        return os.path.join(self.common_state, REPOSITORY)

    def _lines(self) -> list[str]:
        """Return the lines that are ids; malformed lines are skipped."""
        return [line for line in self._read() if LINE.fullmatch(line)]

    def _read(self) -> list[str]:
        with suppress(OSError):
            return (read_file(self._path) or b"").decode("ascii", "replace").splitlines()
        return []

    def _keep_damaged(self) -> None:
        """Rename a file with malformed lines before it is replaced."""
        if len(self._read()) != len(self._lines()):
            os.replace(self._path, f"{self._path}.damaged")


CURRENT = "current"
USED = "used"
"""Exists once something was sealed and the user was informed about the key."""
NO_OTHER_COPY = "import the key from a backup: git envlog key import <file>"
HOME = "home"
"""The value of `envhist.keyIn` that stores keys only in the configuration home."""


class ReceivedKeys(Protocol):
    """Keys of other repositories, encrypted for this user as recipient."""

    def find(self, key_id: str) -> OpeningKey | None:
        """Return the key of an id, or None if none was received that a private key of this user opens."""
        ...

    def problem(self, key_id: str) -> str | None:
        """Return why a received key does not open, or None if none was received."""
        ...


class KeyRing:
    """The keys of a repository."""

    def __init__(
        self,
        common_state: str,
        config_home: str,
        key_in: str = "",
        received: Callable[[], ReceivedKeys] | None = None,
    ) -> None:
        """Open the keys of a repository.

        `key_in`: `home` stores keys only in the configuration home; `received`: returns keys encrypted for this user.
        """
        self._receive = received
        self._received_keys: ReceivedKeys | None = None
        self._common_state = common_state
        self.ours = KeyDirectory(os.path.join(common_state, "keys"))
        self._origins = Origins(common_state)
        self.backup = KeyDirectory(os.path.join(config_home, "git-envhist", "keys"), is_users=True)
        self._stored_in = (self.backup,) if key_in == HOME else (self.ours, self.backup)
        self.warnings: list[str] = []
        self.made: Key | None = None
        """The key that this ring created because there was none: the user should back it up."""
        self._known: dict[str, Key] = {}
        self._unreadable: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self._current: Key | None = None

    @property
    def places(self) -> tuple[KeyDirectory, KeyDirectory]:
        return self.ours, self.backup

    def current(self) -> Key:
        """Return the key that seals new files. The first use creates it, in both places."""
        if self._current is None:
            self._current = self._read_current()
        if self._current is None:
            with self.ours.locked():
                # Another process may have created one meanwhile: all must use the same key.
                self._current = self._read_current() or self._adopt() or self._make()
        self._complete(self._current)
        return self._current

    def first_use(self) -> bool:
        """Return whether nothing was sealed here before, and record that something is now."""
        with suppress(OSError):
            if self.ours.read(USED) is None:
                self.ours.write(USED, b"")
                return True
        return False

    def current_id(self) -> str | None:
        """Return the id that `current` names, whether or not its key exists. Creates nothing."""
        try:
            content = self.ours.read(CURRENT)
        except OSError as failure:
            raise SealingError(f"cannot read '{self.ours.path(CURRENT)}': {failure.strerror}") from failure
        name = (content or b"").decode("ascii", "replace").strip()
        return name if KEY_NAME.fullmatch(name) else None

    def get(self, key_id: str) -> Key | None:
        """Return the key of an id that this repository created or imported, from either place."""
        if not KEY_NAME.fullmatch(key_id):
            return None
        if key_id not in self._known:
            key = self._read(self.ours, key_id) or self._from_backup(key_id)
            if key is None:
                return None
            self._known[key_id] = key
        return self._known[key_id]

    def _from_backup(self, key_id: str) -> Key | None:
        if not self._origins.may_include(key_id, self._current_name()):
            return None
        key = self._read(self.backup, key_id)
        return key if key is not None and self._origins.records_key(key) else None

    def _current_name(self) -> str | None:
        with suppress(SealingError):
            return self.current_id()
        return None

    def opening(self, key_id: str) -> Key | OpeningKey | None:
        """Return the key that opens content sealed by an id; one received as a recipient can only open."""
        key = self.get(key_id)
        received = self._received() if key is None and KEY_NAME.fullmatch(key_id) else None
        return received.find(key_id) if received is not None else key

    def _received(self) -> ReceivedKeys | None:
        if self._received_keys is None and self._receive is not None:
            self._received_keys = self._receive()
        return self._received_keys

    def to_open(self, key_id: str) -> Key | OpeningKey | None:
        """Return the opening key of an id. Raise `SealingError` if it exists and cannot be used."""
        key = self.opening(key_id)
        if key is not None:
            return key
        problem = self._damaged.get(key_id) or self._unreadable.get(key_id)
        if problem is not None:
            raise SealingError(f"{problem}: files sealed with it cannot be opened", hint=NO_OTHER_COPY)
        if key_id in self.backup.ids():
            raise SealingError(
                f"the key '{key_id}' belongs to another repository: this one neither created nor imported it",
                hint=f"if you trust that repository: git envlog key import '{self.backup.path(key_id)}'",
            )
        received = self._received() if KEY_NAME.fullmatch(key_id) else None
        wrapped = received.problem(key_id) if received is not None else None
        if wrapped is not None:
            raise SealingError(
                wrapped, hint="'git envlog key identity' prints your public key, for the owner of the history"
            )
        return None

    def all(self) -> tuple[Key, ...]:
        """Return every key of this repository, but no keys of other repositories from the configuration home."""
        ids = sorted({*self.ours.ids(), *self.backup.ids()})
        return tuple(key for key_id in ids if (key := self.get(key_id)) is not None)

    def created_here(self) -> tuple[str, ...]:
        """Return the ids of the keys that this repository created."""
        own = self._origins.own
        return tuple(key.id for key in self.all() if key.repository and key.repository.hex() == own)

    def use(self, key: Key) -> None:
        """Seal new files with this key from now on."""
        with self.ours.locked():
            self._store(key)
            self._write_current(key)

    def to_share(self) -> tuple[Key, ...]:
        """Return the keys that recipients get: those created here, and the one that seals new files."""
        wanted = {*self.created_here(), *filter(None, [self._current_name()])}
        return tuple(key for key in self.all() if key.id in wanted)

    def recipients(self) -> tuple[str, ...]:
        """Return the lines of the recipients list. Raise `SealingError` if no key of this repository signed it."""
        from git_envhist.secrets.recipients import read_recipients  # loaded late: only sharing needs it

        return read_recipients(self._common_state, self.get)

    def set_recipients(
        self, change: Callable[[tuple[str, ...]], tuple[str, ...]], *, reset: bool = False
    ) -> None:
        """Change the list of recipients; `reset`: start with an empty list."""
        from git_envhist.secrets.recipients import write_recipients  # loaded late: only sharing needs it

        key = self.current()
        with self.ours.locked():
            write_recipients(self._common_state, change(() if reset else self.recipients()), key)

    def renew(self) -> Key:
        """Create a new key and seal new files with it; older keys are kept to open older files."""
        with self.ours.locked():
            return self._make()

    def export(self, key_id: str, write: Callable[[Key], str] | None = None) -> str:
        """Return a key on one line, for a backup or another machine; `write`: converts the key to another form."""
        key = self.get(key_id)
        if key is None:
            raise SealingError(f"there is no key '{key_id}'", hint="'git envlog key show' lists the keys")
        from git_envhist.secrets.key_text import write_key_text  # loaded late: only an export needs it

        return (write or write_key_text)(key)

    def import_(self, text: str) -> Key:
        """Store an exported key. If none is in use yet, it seals new files from now on."""
        from git_envhist.secrets.key_text import read_key_text  # loaded late: only an import needs it

        key = read_key_text(text)
        with self.ours.locked():
            self._store(key)
            if self._read_current() is None:
                self._write_current(key)
        return key

    def _read_current(self) -> Key | None:
        key_id = self.current_id()
        if key_id is None:
            return None
        key = self.get(key_id)
        if key is None and key_id in self._unreadable:
            # A key that exists and cannot be read is not lost: a new one would only hide the problem.
            raise SealingError(
                self._unreadable[key_id],
                hint="if it belongs to another user, import a copy: git envlog key import <file>",
            )
        return key

    def _adopt(self) -> Key | None:
        # A process killed between storing its key and writing `current` leaves a good key that is not in use.
        lost = self.current_id()
        if lost is not None:
            self._warn(f"the key '{lost}' is lost: files sealed with it cannot be opened; {NO_OTHER_COPY}")
            return None
        keys = self.all()
        if not keys:
            return None
        newest = max(keys, key=lambda key: (self._changed(key.id), key.id))
        self._write_current(newest)
        return newest

    def _make(self) -> Key:
        own = self._origins.own
        repository = bytes.fromhex(own) if own is not None else os.urandom(REPOSITORY_LENGTH)
        key = Key.of(os.urandom(SECRET_LENGTH) + repository)
        self._store(key)
        self._write_current(key)
        self.made = key
        return key

    def _changed(self, key_id: str) -> int:
        for place in self.places:
            with suppress(OSError):
                return os.stat(place.path(key_id)).st_mtime_ns
        return 0

    def _store(self, key: Key) -> None:
        self._refuse_other(key)
        self._origins.add(key)
        failures = []
        for place in self._stored_in:
            try:
                place.write(key.id, format_key_file(key))
            except OSError as failure:
                failures.append(f"cannot store the key '{key.id}' in '{place.directory}': {failure.strerror}")
        if len(failures) == len(self._stored_in):
            raise SealingError(
                "; ".join(failures), hint="without a key, snapshots do not include secret files"
            )
        for text in failures:
            self._warn(f"{text}: only one copy of it exists; make another: git envlog key export")
        self._known[key.id] = key

    def _refuse_other(self, key: Key) -> None:
        """Refuse to overwrite another key that has the same id."""
        for place in self.places:
            with suppress(OSError, SealingError):
                other = read_key_file(place.read(key.id) or b"")
                if other.id == key.id and other != key:
                    raise Refused(
                        f"another key has the id '{key.id}': the new one would replace it",
                        hint="do not use the new key before you know its origin",
                    )

    def _write_current(self, key: Key) -> None:
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
        self._make_private(place, key_id)
        with suppress(SealingError):
            key = read_key_file(content)
            if key.id == key_id:
                return key
        self._damaged[key_id] = f"the key file '{place.path(key_id)}' is damaged"
        self._warn(self._damaged[key_id])
        return None

    def _make_private(self, place: KeyDirectory, key_id: str) -> None:
        for what, path, closed in (
            ("directory of keys", place.directory, place.make_private()),
            ("key file", place.path(key_id), place.make_private(key_id)),
        ):
            if closed is not None:
                result = "fixed" if closed else "its mode cannot be changed"
                self._warn(f"the {what} '{path}' was readable by other users: {result}")

    def _complete(self, key: Key) -> None:
        """Write missing copies of the key in use, and move keys out of the repository if so configured."""
        self._origins.add(key)
        for place in self._stored_in:
            if key.id not in place.ids() or self._read(place, key.id) is None:
                with suppress(OSError):  # a second copy is optional
                    place.write(key.id, format_key_file(key))
        if self.ours not in self._stored_in:
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
            self._warn(f"the key '{key_id}' cannot be moved out of '{self.ours.directory}'")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
