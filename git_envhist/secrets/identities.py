"""The private keys of this user: the file of `envhist.identity`, or git-envhist's own file and an SSH key."""

from __future__ import annotations

import os

from git_envhist.directories_of_others import make_directories
from git_envhist.disk import read_exactly
from git_envhist.errors import SealingError
from git_envhist.secrets.age_file import decrypt
from git_envhist.secrets.age_keys import MAX_FILE, Identity, make_identity, read_identities

OWN = "git-envhist/identity"
SSH = ".ssh/id_ed25519"


class Identities:
    """Finds the private keys and decrypts files that were encrypted for them."""

    def __init__(self, configured: str | None, home: str, config_home: str) -> None:
        """`configured`: a file to use instead of those in the home directory and the configuration home."""
        self.own = os.path.join(config_home, OWN)
        places = [self.own, os.path.join(home, SSH)]
        if configured is not None:
            within = configured.removeprefix("~/")
            self.own = os.path.join(home, within) if within != configured else configured
            places = [self.own]
        self._problems: list[str] = []
        self._found = [one for place in places for one in self._read(place)]

    @property
    def problems(self) -> tuple[str, ...]:
        """Why private keys that exist cannot be used."""
        return tuple(self._problems)

    def open(self, data: bytes) -> bytes | None:
        """Return the content of an age file, or None if it was not encrypted for this user."""
        return decrypt(data, self._found)

    def first(self) -> Identity | None:
        """Return the private key of which others get the public half."""
        return self._found[0] if self._found else None

    def make(self) -> Identity:
        """Create a private key in the own file, which must not exist."""
        identity, text = make_identity()
        make_directories(os.path.dirname(self.own))
        descriptor = os.open(self.own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return identity

    def _read(self, path: str) -> tuple[Identity, ...]:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ()
        except OSError as failure:
            self._problems.append(f"cannot read '{path}': {failure.strerror}")
            return ()
        try:
            text = read_exactly(descriptor, MAX_FILE, 0).decode("utf-8", "replace")
            return read_identities(text)
        except (OSError, SealingError) as failure:
            self._problems.append(f"'{path}': {getattr(failure, 'message', failure)}")
            return ()
        finally:
            os.close(descriptor)
