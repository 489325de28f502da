"""The keys of a repository: made at first use, kept in two places, found again in either.

Each key lies in `<common git dir>/envhist/keys/<id>`, which no push, clone or bundle carries, and again in
`<configuration home>/git-envhist/keys/<id>`, so that a rebuilt container does not lose what was sealed; with
`envhist.keyIn=home` only there. `<common git dir>/envhist/keys/current` names the one that seals new files.

The configuration home holds the keys of all repositories of the user. Another repository can bring a ref, and with it
the id of a key, so only keys that this repository made or imported are taken from there (`keyorigins`). Reading never
writes a key.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from git_envhist.errors import Refused, SealingError
from git_envhist.store.keyfiles import KEY_NAME, KeyDirectory
from git_envhist.store.keyforms import (
    REPOSITORY_LENGTH,
    SECRET_LENGTH,
    Key,
    OpeningKey,
    read_key_file,
    read_key_text,
    write_key_file,
    write_key_text,
)
from git_envhist.store.keyorigins import Origins

__all__ = ["Key", "KeyRing", "read_key_file", "read_key_text", "write_key_file", "write_key_text"]

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
        from git_envhist.store.recipients import read_recipients  # loaded late: keeps envlog fast

        return read_recipients(self._common_state, self.get)

    def set_recipients(
        self, change: Callable[[tuple[str, ...]], tuple[str, ...]], *, reset: bool = False
    ) -> None:
        """Change the list of recipients; `reset`: begin with an empty one."""
        from git_envhist.store.recipients import write_recipients  # loaded late: likewise

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
