"""Effects outside the machine, and checkpoints that the platform below took without us.

An effect (a mail sent, a deployment) is noted before it happens and again with its exit status; a restore lists those
that it does not undo. An irreversible effect happens only if it is approved.

Checkpoints of a platform are listed by a command of the user (`envhist.platformList`): one per line as
`<id> <time> [<comment>]`, or JSON objects with an id, a time and a comment under the names that platforms use.
"""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from git_envhist.context import HistoryContext
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.history.tasks_and_effects import (
    effect_record,
    effects_of,
    effects_since,
    observed_of,
    observed_record,
)
from git_envhist.history.timeline import subject
from git_envhist.lazy import replace
from git_envhist.model import Effect, ObservedCheckpoint, Snapshot
from git_envhist.secrets.masking import mask_text
from git_envhist.tracking.tasks import CaptureNow, masked_text, new_mark

if TYPE_CHECKING:
    pass


# Effects.

Approve = Callable[[Effect], bool]
"""Return whether an irreversible effect may happen."""


def approve_all(_effect: Effect) -> bool:
    """Approve every effect."""
    return True


def refuse_all(_effect: Effect) -> bool:
    """Refuse every effect: the decision of a program that gave no `approve`."""
    return False


class Effects:
    """The effects of a timeline."""

    def __init__(self, history: HistoryContext, capture: CaptureNow) -> None:
        self._history = history
        self._capture = capture

    def all(self) -> tuple[Effect, ...]:
        """Return all effects, oldest first; refused ones are among them."""
        return effects_of(self._history.log())

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.all())

    def since(self, target: Snapshot) -> tuple[Effect, ...]:
        """Return the effects that a restore to a snapshot of this timeline does not undo."""
        return effects_since(self._history.log(), target.id)

    def note(self, text: str, *, irreversible: bool = False) -> Effect:
        """Note an effect that has happened."""
        effect = self._begin(text, irreversible, None)
        self._record(effect)
        return effect

    def perform(
        self,
        text: str,
        act: Callable[[], int | None],
        *,
        command: str | None = None,
        irreversible: bool = False,
        approve: Approve | None = None,
    ) -> Effect:
        """Call `act` and note the effect with the exit status that it returns (None: 0).

        An irreversible effect happens only if `approve` returns true for it; a program that wants no question gives
        `approve_all`. A refused one is noted as refused, and raises Refused. TypeError if `act` or `approve` cannot be
        called: nothing is noted then.
        """
        _refuse_uncallable(act, approve)
        effect = self._begin(text, irreversible, command)
        if irreversible and not self._is_approved(effect, approve or refuse_all):
            raise Refused(
                f"not approved, and not done: '{subject(effect.text)}'",
                hint="--yes approves it without a question" if approve else "give approve=, which decides",
            )
        # The effect may have happened even if this process ends before the record is written.
        self._record(effect)
        status = act()
        ended = replace(effect, exit_code=0 if status is None else int(status))
        self._record(ended)
        return ended

    def _is_approved(self, effect: Effect, approve: Approve) -> bool:
        """Ask; note the effect as refused unless it is approved."""
        try:
            approved = approve(effect)
        except BaseException:
            self._record(replace(effect, refused=True))
            raise
        if not approved:
            self._record(replace(effect, refused=True))
        return approved

    def _begin(self, text: str, irreversible: bool, command: str | None) -> Effect:
        text, command = masked_text(text), None if command is None else masked_text(command)
        snapshot = self._capture(f"before: {subject(text)}")
        return Effect(new_mark(), text, self._history.now, irreversible, command, None, snapshot.id)

    def _record(self, effect: Effect) -> None:
        assert effect.snapshot_id is not None
        self._history.add_records(
            self._history.resolve(effect.snapshot_id), effect_record(effect, new_mark())
        )


def _refuse_uncallable(act: object, approve: object) -> None:
    for name, function, arguments in (("act", act, ()), ("approve", approve, (None,))):
        if function is None and name == "approve":
            continue
        if not callable(function):
            raise TypeError(f"perform() needs a function as '{name}', not {type(function).__name__}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"perform() cannot wait for '{name}': it is a coroutine function")
        try:
            signature = inspect.signature(function)
        except ValueError:  # a built-in function without one
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise TypeError(f"perform() cannot call '{name}': {error}") from None


# Checkpoints of a platform.

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
MAX_LENGTH = 200
MAX_COUNT = 10_000


class ListedCheckpoint(NamedTuple):
    """A checkpoint as the platform lists it."""

    external_id: str
    taken_at: datetime
    comment: str = ""


class PlatformFailed(EnvhistError):
    """The command that lists the platform's checkpoints failed."""

    code = "platform-failed"


class Observations:
    """The platform's checkpoints that a timeline records."""

    def __init__(self, history: HistoryContext, capture: CaptureNow) -> None:
        self._history = history
        self._capture = capture

    def all(self) -> tuple[ObservedCheckpoint, ...]:
        """Return all recorded checkpoints, by the time at which they were taken."""
        return observed_of(self._history.log())

    def find(self, external_id: str) -> ObservedCheckpoint | None:
        """Return the recorded checkpoint with this id of the platform."""
        return next((one for one in self.all() if one.external_id == external_id), None)

    def note(self, listed: Iterable[ListedCheckpoint], source: str = "") -> tuple[ObservedCheckpoint, ...]:
        """Record the checkpoints that are not known yet, and return these."""
        line = self._history.log()
        known = set(known_ids(line))
        fresh = list({one.external_id: one for one in listed if one.external_id not in known}.values())
        if not fresh:
            return ()
        snapshot_id = line[0] if line else self._capture("before: checkpoints of the platform")
        now = self._history.now
        found = [
            ObservedCheckpoint(one.external_id, one.taken_at, now, mask_text(one.comment), source)
            for one in fresh
        ]
        self._history.add_records(snapshot_id, *(observed_record(one, new_mark()) for one in found))
        kept = {one.external_id: one for one in self.all()}
        return tuple(kept[one.external_id] for one in found)

    def look(self) -> tuple[ObservedCheckpoint, ...]:
        """Run the configured command, and record the checkpoints that are not known yet."""
        command = self._history.settings.platform_list
        if command is None:
            raise UsageError(
                "no command for the platform's checkpoints is configured",
                hint="git config envhist.platformList '<command>'",
            )
        return self.note(read_list(ask_platform(command)))


def ask_platform(command: str) -> str:
    """Return the output of the user's command; raise `PlatformFailed` if it fails."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"status {done.returncode}"]
        raise PlatformFailed(f"'{command}' failed: {errors[-1]}", hint="run it by hand to see its output")
    return done.stdout.decode("utf-8", "replace")


def read_list(text: str) -> list[ListedCheckpoint]:
    """Return the checkpoints in the output of the command; other lines, e.g. a heading, are skipped."""
    values = _objects(text)
    found = (
        map(_from_object, values) if values is not None else map(_from_line, text.splitlines()[:MAX_COUNT])
    )
    return [one for one in found if one is not None]


def _objects(text: str) -> list[dict[str, Any]] | None:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if isinstance(values, dict):
        values = next((value for value in values.values() if isinstance(value, list)), [values])
    if values is None:
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return None
    return (
        [one for one in values if isinstance(one, dict)][:MAX_COUNT]
        if isinstance(values, list) and values
        else None
    )


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
    return 0 < len(text) <= MAX_LENGTH and text.isprintable() and not text.startswith("-")


def read_time(text: str) -> datetime | None:
    """Return a time given in ISO 8601 (UTC without a zone) or in seconds since 1970; None for another text."""
    try:
        if text.replace(".", "", 1).isdecimal() and len(text) >= 9:
            return datetime.fromtimestamp(float(text), UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def known_ids(line: Iterable[Snapshot]) -> Iterator[str]:
    """Yield every id that another program gave a snapshot or a checkpoint of a timeline."""
    kept = list(line)
    yield from (one.external_id for one in kept if one.external_id)
    yield from (one.external_id for one in observed_of(kept))
