"""Decide which call of an agent's tool made a change of a step, or that it is uncertain (pure).

A step is a snapshot and the one before it. Its calls are those that hooks reported for the time between the two
captures. Nobody reports the edits of persons and of other programs, so a call is named only with evidence:

- the file contains exactly the bytes that the call was to write, contained before it what it was to read, and was
  written between the reported beginning and end of the call; or
- it is the only call that can have made the change, its beginning and its end are known, and the change was written
  between the two: by the time of the file, and of its directory. No time shows when a path was removed: then it must
  also be the only call since a capture for which it waited.

A call cannot have made a change if it edits other files only, or if its command line only reads. What a package manager
installs is written as a whole: there, calls that had ended before do not come into question either. A call that began
after the time of the file does: it may have set the time back, as `cp -p` does.

Everything else is uncertain, with the calls that come into question. A program that writes while a call runs cannot be
told from the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from git_envhist.lazy import dataclass, replace
from git_envhist.model import RestoreRole, Snapshot, ToolCall, Trigger

SLACK = 0.05
"""Seconds by which the recorded end of a call may be early: the kernel rounds the times of files down."""
LATE = (
    "the tool did not wait for the end of this capture (envhist.agentTimeout passed): "
    "some of its changes may be in this snapshot"
)
"""The remark on a snapshot whose tool began before the end of the capture."""


class Certainty(Enum):
    """How sure it is who made a change."""

    CALL = "call"
    """A call of an agent's tool."""
    RESTORE = "restore"
    """A restore, an undo or a revert."""
    FIRST = "first"
    """The oldest snapshot has it already."""
    UNCERTAIN = "uncertain"


class Reason(Enum):
    """Why a call is named, or why none is."""

    BYTES = "the file contains exactly what the call was to write"
    TIME = "it was written while this was the only call that could"
    RESTORED = "a restore wrote it"
    FIRST = "the oldest snapshot has it already"
    RAN = "it was captured right before and after this command"
    UNSIGNED = "the snapshot is unsigned, so its calls are only claimed"
    NO_RECORD = "no hook of an agent reported calls for this step"
    THINNED = "snapshots between were dropped"
    NO_CALL = "no reported call ran in this step: a person or another program changed it"
    NOT_NAMED = "no call of this step names this path: another program may have changed it"
    SEVERAL = "several calls ran in this step"
    NO_END = "the end of the call was not reported, so an edit after it cannot be told from it"
    OTHER_TIME = "it was not written while the call ran: a person or another program may have changed it"
    NO_TIME = "nothing shows when it was changed"
    DIRECTORY = "the time of a directory does not show who changed what is below it"
    NOT_WAITED = "nothing shows when it was changed between the last capture and the call"
    NOT_RESTORED = "a restore or a revert ran in this step, and another program may have changed it too"
    LATE = "the tool began before the capture had ended"


@dataclass(frozen=True, slots=True)
class ChangeTime:
    """When a change was written, in seconds; None where nothing shows it."""

    written: float | None = None
    """The time of the file, or of the directory for a path that was removed."""
    placed: float | None = None
    """The time of its directory: later if an entry of it was added, removed or renamed after."""
    is_indirect: bool = False
    """The change may be older than these times: of a removed path, or of several files of a database."""
    is_directory: bool = False
    """The path is a directory: any path below it may have changed."""
    is_whole: bool = False
    """Everything that changed was written as a whole: what was written there before in the step does not matter."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The answer about one change of a step."""

    certainty: Certainty
    reason: Reason
    call: ToolCall | None = None
    """The call that made the change; None unless it is certain."""
    candidates: tuple[ToolCall, ...] = ()
    """The calls that come into question, if it is uncertain."""
    start: float | None = None
    """The beginning of the time in which the change was made; None if it is not known."""
    end: float | None = None


def attribute_change(
    snapshot: Snapshot,
    before: Snapshot | None,
    path: str | None,
    time: ChangeTime,
    later: Sequence[Snapshot] = (),
    *,
    is_restored: bool = True,
) -> Attribution:
    """Return which call made a change of the step from `before` to `snapshot`.

    `path`: the path of the environment that changed, None for a change that no path shows. `later`: the snapshots
    after this one, the nearest first, which may know the end of a call that still ran. `is_restored`: the path is as
    in the restored snapshot; read only for a restore.
    """
    if before is None:
        return Attribution(Certainty.FIRST, Reason.FIRST)
    calls = _with_ends(snapshot.calls, later)
    window = snapshot.window if snapshot.window and snapshot.window.after == before.id else None
    if window is None:
        ran = [call for call in calls if call.began is not None]
        found = _without_window(snapshot, before, ran, later, is_restored=is_restored)
        return replace(found, start=before.at.timestamp(), end=snapshot.at.timestamp())
    if snapshot.restore in RESTORED and is_restored:
        return Attribution(Certainty.RESTORE, Reason.RESTORED, start=window.start, end=window.end)
    calls += calls_of_run(snapshot)
    is_late = any(remark.text == LATE for remark in snapshot.remarks)
    ran = [call for call in calls if is_late or (call.began is not None and _ran_after(call, window.start))]
    able = [call for call in ran if _is_able(call, path, time)]
    if snapshot.restore in RESTORED:
        found = _uncertain(Reason.NOT_RESTORED, able)
    else:
        found = _without_trust(snapshot, _decide(able, path, time, ran, is_late=is_late))
    if found.call is not None and time.is_indirect and not (len(ran) == 1 and _waited(found.call, before)):
        found = _uncertain(Reason.NOT_WAITED, ran)
    return replace(found, start=window.start, end=window.end)


RESTORED = tuple(role for role in RestoreRole if role is not RestoreRole.BEFORE)
RUN = "git envlog run"
"""The name of the tool for a command that was run between two snapshots."""


def _is_able(call: ToolCall, path: str | None, time: ChangeTime) -> bool:
    """Return whether a call can have changed a path, or one below a directory."""
    if not call.changes_only_paths:
        return True
    if path is None:
        return False
    below = f"{path}/" if path else ""
    is_directory = time.is_directory or time.is_whole
    return path in call.paths or (is_directory and any(one.startswith(below) for one in call.paths))


def _waited(call: ToolCall, before: Snapshot) -> bool:
    """Return whether the snapshot before lists a call as about to begin: then its capture ended before the call."""
    is_late = any(remark.text == LATE for remark in before.remarks)
    about = [(one.session, one.id) for one in before.calls if one.began is None]
    return not is_late and call.id is not None and (call.session, call.id) in about


def _without_window(
    snapshot: Snapshot,
    before: Snapshot,
    ran: Sequence[ToolCall],
    later: Sequence[Snapshot],
    *,
    is_restored: bool,
) -> Attribution:
    """Return the answer about a step whose list of calls may be incomplete."""
    # The snapshot before is the one that the capture saw, unless the timeline was rewritten.
    is_next = snapshot.window is None and snapshot.id == snapshot.commit and snapshot.parent == before.commit
    if is_next and snapshot.restore in RESTORED:
        if not is_restored:
            return _uncertain(Reason.NOT_RESTORED, ran)
        return Attribution(Certainty.RESTORE, Reason.RESTORED)
    command = calls_of_run(snapshot)
    if not is_next and (snapshot.window is not None or snapshot.id != snapshot.commit):
        return _uncertain(Reason.THINNED, [*ran, *command])
    if is_next and command and not ran:
        others = [call for one in later if _overlaps(one, snapshot, 1.0) for call in calls_of_run(one)]
        if others or _overlaps(snapshot, before, -1.0):
            return _uncertain(Reason.SEVERAL, [*command, *others])
        return _without_trust(snapshot, Attribution(Certainty.CALL, Reason.RAN, command[0]))
    return _uncertain(Reason.NO_RECORD, [*ran, *command])


def _overlaps(run: Snapshot, earlier: Snapshot, slack: float) -> bool:
    """Return whether the command of a snapshot began before an earlier snapshot was taken; times are whole seconds."""
    meta = dict(run.meta)
    if not calls_of_run(run):
        return False
    duration = meta.get("duration-ms", "")
    if not (duration.isascii() and duration.isdecimal()):
        return False
    # A check runs after the command and before the time of its snapshot.
    spent = int(duration) + (run.verdict.duration_ms or 0 if run.verdict is not None else 0)
    return run.at.timestamp() - spent / 1000 < earlier.at.timestamp() + slack


def calls_of_run(snapshot: Snapshot) -> list[ToolCall]:
    """Return the command that ran before this snapshot, by `git envlog run`; none for other snapshots."""
    meta = dict(snapshot.meta)
    if snapshot.trigger is not Trigger.RUN or "command" not in meta:
        return []
    agent, session = snapshot.actor.agent or "", snapshot.actor.session or ""
    return [ToolCall(RUN, agent, session=session, command=meta["command"], began=snapshot.at.timestamp())]


def _without_trust(snapshot: Snapshot, found: Attribution) -> Attribution:
    """Return the answer; for an unsigned snapshot an uncertain one, because anybody may have written its calls."""
    if snapshot.trusted is not False or found.call is None:
        return found
    return _uncertain(Reason.UNSIGNED, (found.call,))


def _ran_after(call: ToolCall, start: float) -> bool:
    return call.ended is None or call.may_continue or call.ended >= start - SLACK


def _decide(
    able: Sequence[ToolCall],
    path: str | None,
    time: ChangeTime,
    ran: Sequence[ToolCall],
    *,
    is_late: bool,
) -> Attribution:
    wrote = [call for call in able if path is not None and path in call.wrote]
    if len(wrote) == 1 and not is_late and _is_within(wrote[0], time.written):
        return Attribution(Certainty.CALL, Reason.BYTES, wrote[0])
    if is_late:
        return _uncertain(Reason.LATE, ran)
    if not ran:
        return _uncertain(Reason.NO_CALL)
    if not able:
        return _uncertain(Reason.NOT_NAMED, ran)
    left = [call for call in able if _may_have_written(call, time)]
    if len(left) == 1:
        return _by_time(left[0], time)
    return _uncertain(Reason.SEVERAL, left or able) if len(able) > 1 else _by_time(able[0], time)


def _may_have_written(call: ToolCall, time: ChangeTime) -> bool:
    """Return whether the times of a change allow that a call of its step made it."""
    if time.is_directory or time.is_indirect or time.written is None or time.placed is None:
        return True
    # A later call may have set the time back (`cp -p`, `touch -r`), so only an earlier one can be excluded.
    is_over = call.ended is not None and not call.may_continue
    return not (time.is_whole and is_over and call.ended is not None and call.ended < time.written - SLACK)


def _by_time(call: ToolCall, time: ChangeTime) -> Attribution:
    if time.is_directory:
        return _uncertain(Reason.DIRECTORY, (call,))
    if call.began is None or call.ended is None:
        return _uncertain(Reason.NO_END, (call,))
    if time.written is None or time.placed is None:
        return _uncertain(Reason.NO_TIME, (call,))
    if _is_within(call, time.written) and time.placed < call.ended:
        return Attribution(Certainty.CALL, Reason.TIME, call)
    return _uncertain(Reason.OTHER_TIME, (call,))


def _is_within(call: ToolCall, at: float | None) -> bool:
    """Return whether a file was written while a call ran: a tool that failed may be followed by another writer."""
    if at is None or call.began is None or call.ended is None:
        return False
    # Strictly before the end: an edit right after it may have the same rounded time.
    return call.began <= at < call.ended


def _uncertain(reason: Reason, candidates: Iterable[ToolCall] = ()) -> Attribution:
    return Attribution(Certainty.UNCERTAIN, reason, candidates=tuple(candidates))


def _with_ends(calls: Sequence[ToolCall], later: Sequence[Snapshot]) -> list[ToolCall]:
    """Return the calls with ends that later snapshots know."""
    ends: Mapping[tuple[str, str | None, float | None], float] = {
        _identity(call): call.ended
        for snapshot in reversed(later)
        for call in snapshot.calls
        if call.ended is not None and call.began is not None
    }
    return [
        replace(call, ended=ends.get(_identity(call)))
        if call.ended is None and call.began is not None
        else call
        for call in calls
    ]


def _identity(call: ToolCall) -> tuple[str, str | None, float | None]:
    return call.session, call.id, call.began
