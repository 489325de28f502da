"""Which keys of the configuration home are a repository's own: `<common git dir>/envhist/repository`.

The file has the ids of the repositories that made them, one per line, its own first, and the ids of keys of the first
form as `key <id>`.
"""

from __future__ import annotations

import os
from contextlib import suppress

from git_envhist.store.durable import replace_file
from git_envhist.store.keyfiles import read_file
from git_envhist.store.keyforms import FIRST_FORM_LENGTH, Key
from git_envhist.values import dataclass, pattern

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
                replace_file(self._path, "".join(f"{one}\n" for one in (*lines, line)).encode("ascii"))

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
