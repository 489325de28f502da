"""What was checked on this machine: a private list, a line each, that no push, clone or bundle carries.

It knows the last verdict of each content, so that an equal environment can be told to be known, and the commands as
they were typed or configured here. A command is only ever run again if it stands here: notes may come from anywhere.
To lose it costs no verdict.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from git_envhist.model import SnapshotId, Verdict, VerdictStatus
from git_envhist.store.durable import cannot_write, remove_if_present, replace_file
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only
from git_envhist.values import dataclass, replace

FILE = "checks"
LARGEST = 1 << 20
LONGEST_LINE = 64 << 10


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """One verdict: of what, where it was reached, and the command as it was typed."""

    snapshot: SnapshotId
    content: str
    facts: str
    typed: str
    verdict: Verdict
    services: str = ""
    """The states of services that the snapshot held, as one word; empty where it held none."""


class VerdictLog:
    """The list of one repository, shared by its working trees."""

    def __init__(self, common_state: str) -> None:
        self._directory = common_state
        self._path = os.path.join(common_state, FILE)

    def add(self, line: LoggedVerdict) -> None:
        """Put a line at the end; `OSError` where it cannot be kept."""
        text = _text(line)
        if len(text) > LONGEST_LINE:
            return
        state_directory(self._directory)
        self._shorten()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write: lines of two programs do not get into each other.
            os.write(descriptor, text)
        finally:
            os.close(descriptor)

    def known(self, content: str, facts: str) -> LoggedVerdict | None:
        """Return the last line on this content, where everything else agrees too; an error is no verdict on it."""
        return next(
            (
                line
                for line in self._newest_first()
                if (line.content, line.facts) == (content, facts)
                and line.verdict.status is not VerdictStatus.ERROR
            ),
            None,
        )

    def typed(self, told: str) -> str | None:
        """The command, as it was typed here, that notes tell in these words."""
        return next((line.typed for line in self._newest_first() if line.verdict.command == told), None)

    def rewrite(self, digest: Callable[[str], str]) -> None:
        """Have every line say another content, durable; what is no line of ours goes."""
        try:
            remove_if_present(self._path + ".new")
            lines = list(self._newest_first())[::-1]
            if not lines:
                return
            # The states of services are known by sealed texts, which another key seals otherwise.
            told = [_text(replace(line, content=digest(line.content), services="")) for line in lines]
            replace_file(self._path, b"".join(told))
        except OSError as error:
            raise cannot_write(error, self._path) from error

    def _newest_first(self) -> Iterator[LoggedVerdict]:
        try:
            with open(self._path, "rb", opener=open_file_only) as file:
                lines = file.read(2 * LARGEST).split(b"\n")
        except OSError:
            return
        for text in reversed(lines):
            line = _read(text)
            if line is not None:
                yield line

    def _shorten(self) -> None:
        """Let the older half go where the list has become long."""
        try:
            if os.stat(self._path).st_size < LARGEST:
                return
        except OSError:
            return
        with open(self._path, "rb", opener=open_file_only) as file:
            lines = file.read().splitlines(keepends=True)
        with open(self._path + ".new", "wb", opener=_privately) as file:
            file.write(b"".join(lines[len(lines) // 2 :]))
        os.rename(self._path + ".new", self._path)


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _text(line: LoggedVerdict) -> bytes:
    return json.dumps(_fields(line)).encode("ascii") + b"\n"


def _fields(line: LoggedVerdict) -> dict[str, Any]:
    verdict = line.verdict
    return {
        "snapshot": line.snapshot,
        "content": line.content,
        "facts": line.facts,
        "services": line.services,
        "typed": line.typed,
        "command": verdict.command,
        "status": verdict.status.value,
        "at": verdict.at.isoformat(),
        "exit_code": verdict.exit_code,
        "signal": verdict.signal,
        "duration_ms": verdict.duration_ms,
    }


def _read(text: bytes) -> LoggedVerdict | None:
    """The line that a text holds; None where it was cut short, or another version wrote it."""
    try:
        fields = json.loads(text)
        verdict = Verdict(
            VerdictStatus(fields["status"]),
            fields["command"],
            datetime.fromisoformat(fields["at"]),
            fields["exit_code"],
            fields["signal"],
            fields["duration_ms"],
        )
        return LoggedVerdict(
            fields["snapshot"],
            fields["content"],
            fields["facts"],
            fields["typed"],
            verdict,
            fields.get("services") or "",
        )
    except (ValueError, KeyError, TypeError):
        return None
