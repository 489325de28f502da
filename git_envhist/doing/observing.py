"""Checkpoints that the platform below us made without us: found, kept with their own time, and nobody knows why.

What lists them is a command of the user's own (`envhist.platformList`). It says one a line, `<id> <time> [<comment>]`,
or JSON objects with an id, a time and a comment under the names that platforms use.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from git_envhist.capture.masking import mask_text
from git_envhist.doing.tasks import HistoryContext as Tasked
from git_envhist.doing.tasks import current_snapshot, new_mark
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.history.doings import observed_of, observed_record
from git_envhist.model import ObservedCheckpoint, Snapshot

if TYPE_CHECKING:
    from git_envhist.settings import Settings

IDS = ("id", "version", "checkpoint_id", "checkpointId", "external_id", "name")
TIMES = (
    "created_at",
    "createdAt",
    "create_time",
    "createTime",
    "created",
    "taken_at",
    "timestamp",
    "time",
    "at",
)
COMMENTS = ("comment", "description", "message", "label")
LONGEST = 200
MOST = 10_000


class HistoryContext(Tasked, Protocol):
    """What is needed of a history."""

    @property
    def settings(self) -> Settings: ...


class ListedCheckpoint(NamedTuple):
    """One checkpoint as the platform tells of it."""

    external_id: str
    taken_at: datetime
    comment: str = ""


class PlatformFailed(EnvhistError):
    """The command that speaks of the platform's checkpoints did not do it."""

    code = "platform-failed"


class Observations:
    """Those of a timeline."""

    def __init__(self, history: HistoryContext) -> None:
        self._history = history

    def all(self) -> tuple[ObservedCheckpoint, ...]:
        """All of them, by the time at which they were made."""
        return observed_of(self._history.log())

    def find(self, external_id: str) -> ObservedCheckpoint | None:
        """The one that the platform knows by this id."""
        return next((one for one in self.all() if one.external_id == external_id), None)

    def note(self, told: Iterable[ListedCheckpoint], source: str = "") -> tuple[ObservedCheckpoint, ...]:
        """Keep those that nobody here knows of yet."""
        line = self._history.log()
        known = set(known_ids(line))
        fresh = list({one.external_id: one for one in told if one.external_id not in known}.values())
        if not fresh:
            return ()
        stands_on = (
            line[0] if line else current_snapshot(self._history, "before: checkpoints of the platform")
        )
        now = self._history.now
        found = [
            ObservedCheckpoint(one.external_id, one.taken_at, now, mask_text(one.comment), source)
            for one in fresh
        ]
        self._history.tell(stands_on, *(observed_record(one, new_mark()) for one in found))
        kept = {one.external_id: one for one in self.all()}
        return tuple(kept[one.external_id] for one in found)

    def look(self) -> tuple[ObservedCheckpoint, ...]:
        """Ask the platform, by the configured command, and keep what nobody here knows of yet."""
        command = self._history.settings.platform_list
        if command is None:
            raise UsageError(
                "no command is configured that lists the platform's checkpoints",
                hint="git config envhist.platformList '<command>'",
            )
        return self.note(read_list(ask_platform(command)))


def ask_platform(command: str) -> str:
    """What a command of the user's own says of the platform."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise PlatformFailed(
            f"'{command}' failed: {said[-1]}", hint="run it by hand to see what the platform says"
        )
    return done.stdout.decode("utf-8", "replace")


def read_list(text: str) -> list[ListedCheckpoint]:
    """The checkpoints that a platform tells of; what is none (a heading, a line of another kind) is passed over."""
    values = _objects(text)
    found = map(_from_object, values) if values is not None else map(_from_line, text.splitlines()[:MOST])
    return [one for one in found if one is not None]


def _objects(text: str) -> list[dict[str, Any]] | None:
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if isinstance(told, dict):
        told = next((value for value in told.values() if isinstance(value, list)), [told])
    if told is None:
        try:
            told = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return None
    return [one for one in told if isinstance(one, dict)][:MOST] if isinstance(told, list) and told else None


def _from_object(value: dict[str, Any]) -> ListedCheckpoint | None:
    found = [_first(value, names) for names in (IDS, TIMES, COMMENTS)]
    taken_at = read_time(str(found[1])) if found[1] is not None else None
    if found[0] is None or taken_at is None or not _is_id(str(found[0])):
        return None
    return ListedCheckpoint(str(found[0]), taken_at, str(found[2] or ""))


def _first(value: dict[str, Any], names: tuple[str, ...]) -> object:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _from_line(line: str) -> ListedCheckpoint | None:
    words = line.split()
    if len(words) < 2 or not _is_id(words[0]):
        return None
    for taken, length in ((words[1], 2), (" ".join(words[1:3]), 3)):
        taken_at = read_time(taken)
        if taken_at is not None:
            return ListedCheckpoint(words[0], taken_at, " ".join(words[length:]))
    return None


def _is_id(text: str) -> bool:
    return 0 < len(text) <= LONGEST and text.isprintable() and not text.startswith("-")


def read_time(text: str) -> datetime | None:
    """A moment in ISO 8601, or in seconds since 1970; without a zone it is UTC."""
    try:
        if text.replace(".", "", 1).isdecimal() and len(text) >= 9:
            return datetime.fromtimestamp(float(text), UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def known_ids(line: Iterable[Snapshot]) -> Iterator[str]:
    """Every id under which another program knows something of a timeline."""
    kept = list(line)
    yield from (one.external_id for one in kept if one.external_id)
    yield from (one.external_id for one in observed_of(kept))
