"""`git envlog status`: show which hooks take snapshots here, their last runs and their errors."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from git_envhist._version import __version__
from git_envhist.cli.command import Session, command
from git_envhist.cli.commands.install import DONE, place_of
from git_envhist.cli.commands.watcher import read_watcher, watcher_lines
from git_envhist.cli.errors import newest_report, warn, warn_if_half_way
from git_envhist.cli.parser import option
from git_envhist.errors import EnvhistError
from git_envhist.git.current_actor import LocalZone
from git_envhist.integrations.status import read_status
from git_envhist.model.integrations import HookApproval, HookRun, InstalledPart, IntegrationStatus
from git_envhist.printable_text import escape, escape_invalid, format_duration
from git_envhist.secrets.masking import mask_text
from git_envhist.watcher.start import read_failure

LEAST = 14
"""The width of the event column if all events are short."""
MAX_RUNS = 5
"""The number of runs that are printed; a report contains all."""


@command("status", "git envlog status [--report]")
@option("--report", is_flag=True, help="print versions, settings and runs, for a bug report")
def status(session: Session, report: bool) -> None:
    """Show which hooks take snapshots here, their last runs and their errors."""
    session.no_paths()
    found = read_status(place_of(session, only_looks=True), session.history.settings)
    warn_if_half_way(session.history)
    with suppress(EnvhistError):
        # A name that had to be recovered is a warning of the history.
        _ = session.history.timeline
    state = session.history.repository.state
    watcher = read_watcher(state)
    if session.json:
        values = _as_json(found, _settings(session) if report else None)
        session.print_json({**values, "watcher": watcher})
        return
    for line in watcher_lines(watcher, session.history.settings, read_failure(state)):
        session.line(escape(line))
    for line in _lines(found, report, plain=session.history.repository.plain):
        session.line(escape(line))
    if report:
        for line in _report_lines(session, found):
            session.line(escape(line))
    for warning in found.warnings:
        warn(warning)


def _lines(found: IntegrationStatus, whole: bool, *, plain: bool) -> Iterator[str]:
    if found.watching:
        yield "git envlog watch is running here"
    elif not found.here and not found.everywhere:
        # Without git there are no git hooks.
        by = " --global --agent <name>, or git envlog watch" if plain else ""
        yield f"no hooks are installed here; install them: git envlog install{by}"
    for where, parts in (("this repository", found.here), ("every repository", found.everywhere)):
        for name, several in parts.items():
            yield f"{DONE.get(name, name)}, for {where}"
            width = max((len(part.event) for part in several), default=0)
            yield from (_part_line(part, width) for part in several)
    yield from _run_lines(found, len(found.outcomes) if whole else MAX_RUNS)


def _part_line(part: InstalledPart, width: int) -> str:
    words = "; ".join(filter(None, (part.approval.value if part.approval else "", part.remark)))
    event = part.event.ljust(max(width, LEAST))
    return f"  {_symbol(part)} {event} {part.place}{f'  ({words})' if words else ''}"


def _symbol(part: InstalledPart) -> str:
    if part.approval is HookApproval.UNKNOWN:
        return "?"
    return "✓" if part.active else "✗"


def _run_lines(found: IntegrationStatus, most: int) -> Iterator[str]:
    if found.waiting is not None:
        yield f"waiting since {_time(found.waiting.at)}: {found.waiting.event}"
    if not found.outcomes:
        if found.here or found.everywhere:
            yield "no hook has run here yet"
        return
    yield "the last runs" if len(found.outcomes) > 1 else "the last run"
    shown = found.outcomes[-most:] if most else ()
    width = max((len(one.event) for one in shown), default=0)
    for one in reversed(shown):
        yield f"  {_time(one.at)}  {one.event.ljust(max(width, LEAST))} {_result_text(one)}"


def _result_text(one: HookRun) -> str:
    if one.snapshot is not None:
        message = f"; {one.message}" if one.message else ""
        return f"{one.result} {one.snapshot[:7]} ({format_duration(one.seconds)}){message}"
    return f"{one.result}: {one.message}" if one.message else one.result


def _time(at: float) -> str:
    return datetime.fromtimestamp(int(at), LocalZone()).strftime("%Y-%m-%d %H:%M:%S")


def _report_lines(session: Session, found: IntegrationStatus) -> Iterator[str]:
    yield ""
    for name, value in _versions(found).items():
        yield f"{name}: {value}"
    if (failure := newest_report()) is not None:
        yield f"last unexpected failure: {failure}"
    for key, value in _settings(session).items():
        yield f"{key}={value}"


def _versions(found: IntegrationStatus) -> dict[str, str]:
    return {
        "git-envhist": __version__,
        "program": found.program,
        "git": ".".join(map(str, found.git)),
        "python": platform.python_version(),
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
    }


def _settings(session: Session) -> dict[str, str]:
    """Return the settings of git-envhist and of hooks, with secrets masked."""
    config = session.history.repository.read_config()
    ours = [(key, value) for key, value in config if key.startswith(("envhist.", "core.hookspath", "hook."))]
    return {key: mask_text(value or "") for key, value in ours}


def _as_json(found: IntegrationStatus, settings: dict[str, str] | None) -> dict[str, object]:
    report: dict[str, object] = {
        "schema": 1,
        "enabled": found.enabled,
        "program": escape_invalid(found.program),
        "git": ".".join(map(str, found.git)),
        "here": {name: [*map(_part_json, parts)] for name, parts in found.here.items()},
        "everywhere": {name: [*map(_part_json, parts)] for name, parts in found.everywhere.items()},
        "watching": found.watching,
        "waiting": None if found.waiting is None else _iso(found.waiting.at),
        "runs": [_run_json(one) for one in reversed(found.outcomes)],
        "warnings": [*map(escape_invalid, found.warnings)],
    }
    if settings is not None:
        report["versions"] = _versions(found)
        report["settings"] = {escape_invalid(key): escape_invalid(value) for key, value in settings.items()}
    return report


def _part_json(part: InstalledPart) -> dict[str, object]:
    return {
        "event": part.event,
        "active": part.active,
        "place": escape_invalid(part.place),
        "remark": part.remark or None,
        "approval": part.approval.value if part.approval else None,
    }


def _run_json(one: HookRun) -> dict[str, object]:
    return {
        "event": one.event,
        "at": _iso(one.at),
        "result": one.result,
        "seconds": one.seconds,
        "id": one.snapshot,
        "message": escape_invalid(one.message) or None,
        "hint": escape_invalid(one.hint) or None,
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(int(at), LocalZone()).isoformat()
