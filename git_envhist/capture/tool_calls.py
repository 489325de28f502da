"""Keep the calls of agents' tools that may have changed a working tree since its last capture.

Hooks of agents announce each call, and report its end if the agent has an event for it. The list is a file in the state
directory of the working tree, so that it has the calls of all sessions there. A capture writes the calls since the
capture before it into the message of its snapshot; a capture that finds no change still ends the time in which an older
call can have changed something. Without hooks there is no file, and a capture looks once whether it exists.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from git_envhist.disk import Durability, cannot_write, replace_file, state_directory
from git_envhist.lazy import dataclass, field, replace
from git_envhist.locks import lock_within
from git_envhist.model import CallWindow, ToolCall
from git_envhist.platform import guarded_open, open_file_only
from git_envhist.printable_text import replace_surrogates
from git_envhist.trace import trace

DIRECTORY, FILE, LOCK, LOST = "agents", "calls", "calls.lock", "calls.lost"
MAX_CALLS = 256
MAX_AGE = 86_400.0
"""Seconds after which a call without an end is dropped."""
MAX_BYTES = 1 << 20
"""The size of a list above which a snapshot lists no call: its message would be too long."""
LOST_FOR = 3_600.0
"""Seconds for which a call that could not be added may change something."""
CLOCK_STEP = 0.01
"""The time of a file may be this much behind the clock."""
LOCK_WAIT = 0.2
"""Seconds to wait for another process that changes the list; then the change is not made."""


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A file that a call is to write: the ids of its bytes before and after; an empty id: no file."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call in the list."""

    key: str
    """Identifies the call in its session."""
    call: ToolCall
    announced: float
    left: float | None = None
    """A time by which the call had ended, if no hook reported its end itself."""
    writes: tuple[FileWrite, ...] = ()
    listed: bool = False
    """A snapshot lists the call without its end."""

    @property
    def over(self) -> float | None:
        """The latest time at which the call may have changed something; None if it may still run."""
        if self.call.may_continue:
            return None
        return self.call.ended if self.call.ended is not None else self.left


@dataclass(frozen=True, slots=True)
class CallList:
    """The calls of one working tree, and the newest capture of it."""

    calls: tuple[OpenCall, ...] = ()
    after: str = ""
    """The id of the newest snapshot at the last capture; empty before the first capture."""
    looked: float = 0.0
    """The start of the last capture."""
    is_whole: bool = True
    """False if calls were dropped because there were too many."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The part of a snapshot's message about calls."""

    window: CallWindow | None = None
    calls: tuple[ToolCall, ...] = ()
    writes: tuple[tuple[FileWrite, ...], ...] = field(default=())
    """For each call, the files that it was to write."""


NO_RECORD = CallRecord()


class ToolCalls:
    """The list of calls of one working tree."""

    def __init__(self, state: str) -> None:
        self._directory = os.path.join(state, DIRECTORY)
        self._path = os.path.join(self._directory, FILE)

    @property
    def exists(self) -> bool:
        return os.path.exists(self._path)

    def announce(self, call: OpenCall) -> None:
        """Add a call, unless it is in the list and has not ended."""

        def add(calls: CallList) -> CallList:
            if any(_is_same(one, call) and one.over is None for one in calls.calls):
                return calls
            kept = [one for one in calls.calls if one.announced > call.announced - MAX_AGE]
            is_whole = calls.is_whole and len(kept) < MAX_CALLS
            return replace(calls, calls=(*kept[1 - MAX_CALLS :], call), is_whole=is_whole)

        self._change(add)

    def begin(self, session: str, key: str, at: float) -> None:
        """Record that a call begins: its tool waits no longer."""

        def begun(one: OpenCall) -> OpenCall:
            is_meant = one.call.session == session and one.key == key and one.call.began is None
            return replace(one, call=replace(one.call, began=at)) if is_meant else one

        self._change_each(begun)

    def end(
        self, session: str, key: str, at: float, *, continues: bool = False, failed: bool | None = None
    ) -> None:
        """Record the end of a call; a call announced after `at` is another one.

        `continues`: a process of the call still runs. `failed`: the result that the agent reported.
        """

        def ended(one: OpenCall) -> OpenCall:
            is_meant = one.call.session == session and one.key == key and one.call.ended is None
            is_meant = is_meant and one.announced <= at + CLOCK_STEP
            if not is_meant:
                return one
            may_continue = one.call.may_continue or continues
            return replace(one, call=replace(one.call, ended=at, may_continue=may_continue, failed=failed))

        self._change_each(ended)

    def leave(self, session: str, at: float, subagents: Callable[[str | None], bool]) -> None:
        """Record that all calls of some subagents of a session had ended at a time; None is the main agent."""

        def left(one: OpenCall) -> OpenCall:
            is_meant = one.call.session == session and subagents(one.call.subagent)
            is_meant = is_meant and one.announced <= at + CLOCK_STEP
            return replace(one, left=at) if is_meant and one.left is None else one

        self._change_each(left)

    def record(self, now: float, timeout: float) -> CallRecord:
        """Return what the message of a snapshot says about calls; a call may wait `timeout` seconds for its hook."""
        if not self.exists:
            return NO_RECORD
        listed = self._read()
        shown = [
            one for one in listed.calls if one.listed or one.over is None or one.over >= listed.looked - 1.0
        ]
        calls = tuple(_with_begin(one, now, timeout) for one in shown)
        if sum(len(json.dumps(_write_open(one))) for one in shown) > MAX_BYTES:
            trace("the list of tools' calls is too long: the snapshot lists none")
            return NO_RECORD
        is_known = listed.after and listed.is_whole and not self._has_lost()
        window = CallWindow(listed.after, listed.looked, now) if is_known else None
        return CallRecord(window, calls, tuple(one.writes for one in shown))

    def looked(self, after: str, start: float, *, published: bool) -> None:
        """Record that a capture which began at `start` saw the working tree; `after` is now the newest snapshot."""
        if not self.exists:
            return

        def keep(calls: CallList) -> CallList:
            kept = []
            for one in calls.calls:
                is_over = one.over is not None and one.over < start
                if not is_over or (one.listed and not published):
                    is_open = one.call.ended is None
                    kept.append(replace(one, listed=is_open) if published else one)
            return CallList(tuple(kept), after, start)

        self._change(keep)

    def lose(self) -> None:
        """Record, without the lock, that a call could not be added: for some time nothing is claimed."""
        state_directory(self._directory)
        replace_file(os.path.join(self._directory, LOST), b"", durability=Durability.NONE)

    def _has_lost(self) -> bool:
        with suppress(OSError):
            return os.stat(os.path.join(self._directory, LOST)).st_mtime > time.time() - LOST_FOR
        return False

    def _change_each(self, change: Callable[[OpenCall], OpenCall]) -> None:
        if self.exists:
            self._change(lambda calls: replace(calls, calls=tuple(map(change, calls.calls))))

    def _change(self, change: Callable[[CallList], CallList]) -> None:
        with self._locked():
            before = self._read()
            after = change(before)
            if after is not before:
                data = json.dumps(_write_list(after)).encode("ascii")
                replace_file(self._path, data, durability=Durability.NONE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        state_directory(self._directory)
        path = os.path.join(self._directory, LOCK)
        try:
            descriptor = guarded_open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise cannot_write(error, path) from error
        try:
            lock_within(descriptor, fcntl.LOCK_EX, path, LOCK_WAIT)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> CallList:
        try:
            with open(self._path, "rb", opener=open_file_only) as file:
                return _read_list(json.load(file))
        except FileNotFoundError:
            return CallList()
        except (OSError, ValueError, RecursionError, LookupError, TypeError, OverflowError, AttributeError):
            # Calls may be lost: until the next capture nothing is claimed.
            return CallList(is_whole=False)


def wall_time(started: float) -> float:
    """Return the time of day at which a monotonic clock showed `started`."""
    return time.time() - (time.monotonic() - started)


def _is_same(one: OpenCall, other: OpenCall) -> bool:
    return (one.call.session, one.key) == (other.call.session, other.key)


def _with_begin(one: OpenCall, now: float, timeout: float) -> ToolCall:
    """Return the call; one whose hook should have answered by now may have begun."""
    if one.call.began is not None or now < one.announced + timeout:
        return one.call
    return replace(one.call, began=one.announced)


def _write_list(calls: CallList) -> dict[str, Any]:
    return {
        "after": calls.after,
        "looked": calls.looked,
        "whole": calls.is_whole,
        "calls": [_write_open(one) for one in calls.calls],
    }


CALL_FIELDS = tuple(name for name in ToolCall.__annotations__ if name != "wrote")
FLAGS = ("changes_only_paths", "may_continue", "failed")
TIMES = ("began", "ended")
LATEST = 1e11
"""A later time cannot be written as a date."""
SNAPSHOT_ID = re.compile(r"[0-9a-f]*")


def _write_open(one: OpenCall) -> dict[str, Any]:
    return {
        "key": one.key,
        "announced": one.announced,
        "left": one.left,
        "listed": one.listed,
        "writes": [(write.path, write.before, write.after) for write in one.writes],
        "call": {name: getattr(one.call, name) for name in CALL_FIELDS},
    }


def _read_list(value: Mapping[str, Any]) -> CallList:
    """Return the list; raise ValueError, TypeError, LookupError or OverflowError if it is damaged."""
    after = str(value["after"])
    if SNAPSHOT_ID.fullmatch(after) is None:
        raise ValueError("no id of a snapshot")
    return CallList(
        tuple(_read_open(one) for one in value["calls"]),
        after,
        _time(value["looked"]),
        value["whole"] is True,
    )


def _read_open(value: Mapping[str, Any]) -> OpenCall:
    writes: Sequence[Sequence[str]] = value["writes"]
    return OpenCall(
        _text(value["key"]),
        _read_call(value["call"]),
        _time(value["announced"]),
        None if value["left"] is None else _time(value["left"]),
        tuple(FileWrite(*map(_text, write)) for write in writes),
        value["listed"] is True,
    )


def _read_call(known: Mapping[str, Any]) -> ToolCall:
    fields: dict[str, Any] = {}
    for name in CALL_FIELDS:
        value = known.get(name)
        if value is None:
            continue
        if name == "paths":
            fields[name] = tuple(map(_text, value))
        elif name in FLAGS:
            fields[name] = value is True
        else:
            fields[name] = _time(value) if name in TIMES else _text(value)
    return ToolCall(**fields)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return replace_surrogates(value)


def _time(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= float(value) <= LATEST:
        raise ValueError("no time")
    return float(value)
