"""Report the installed integrations: which hooks are active, when they last ran, and which problems exist."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from git_envhist.config import Settings
from git_envhist.git.repository import Repository
from git_envhist.integrations import install
from git_envhist.integrations.agents.outcomes import last_outcomes
from git_envhist.integrations.base import InstallTarget
from git_envhist.integrations.edits import read_record, read_state
from git_envhist.integrations.git_hooks import (
    PUSH_HOOK,
    git_version,
    hooks_state,
    pushes_state,
    read_outcomes,
    read_pending,
)
from git_envhist.integrations.watch import is_watched
from git_envhist.lazy import replace
from git_envhist.model.work import HookRun, InstalledPart, IntegrationStatus, PendingHook

GRACE = 120.0
"""A hook that has not run this many seconds after a commit is reported as not called."""
STALE = 600.0
"""Seconds after which a pending mark that no capture answered is reported."""
LOOKED_BACK = 50
COMMANDS = re.compile(r"(commit|merge|pull|checkout: moving|cherry-pick|rebase.*finish)")
CALLED = re.compile(rb"(?:^|[;{( \t])p=('[^']*(?:'\"'\"'[^']*)*'|[^;\s\\]+)", re.MULTILINE)


def read_status(target: InstallTarget, settings: Settings, *, now: float | None = None) -> IntegrationStatus:
    """Return the status of all integrations; changes nothing."""
    repository = target.repository
    assert repository is not None
    hooks = hooks_state(repository.state)
    here = {} if repository.plain else install.parts(target)
    everywhere = install.parts(replace(target, everywhere=True))
    if repository.plain:
        # git calls no hooks for a directory without a repository.
        everywhere.pop("git", None)
    outcomes, waiting = read_outcomes(hooks), read_pending(hooks)
    pushes = read_outcomes(pushes_state(repository.state))
    warnings = [
        *_warnings(target, settings, here, everywhere, outcomes, waiting, now or time.time()),
        *_push_warnings(settings, [*here.get("git", ()), *everywhere.get("git", ())], pushes),
    ]
    runs = tuple(sorted((*outcomes, *pushes, *_agent_runs(repository)), key=lambda one: one.at))
    return IntegrationStatus(
        settings.enabled,
        target.program,
        git_version(),
        here,
        everywhere,
        runs,
        waiting,
        tuple(warnings),
        is_watched(repository.state),
    )


def _agent_runs(repository: Repository) -> Iterator[HookRun]:
    for agent, kind, runs, at in last_outcomes(repository.state):
        result, _, message = runs.partition(": ")
        result = "unchanged" if result == "nothing changed" else result
        yield HookRun(f"{agent} {kind}", at, result, message=message)


def _push_warnings(
    settings: Settings, found: list[InstalledPart], pushes: tuple[HookRun, ...]
) -> Iterator[str]:
    if settings.auto_push and not any(part.active and part.event == PUSH_HOOK for part in found):
        yield "envhist.autoPush is set, and git's hooks are not installed here: git envlog install"
    if settings.auto_push and pushes and pushes[-1].result in ("failed", "refused"):
        hint = f" ({pushes[-1].hint})" if pushes[-1].hint else ""
        yield f"the last automatic push of the history failed: {pushes[-1].message}{hint}"


def _warnings(
    target: InstallTarget,
    settings: Settings,
    here: dict[str, tuple[InstalledPart, ...]],
    everywhere: dict[str, tuple[InstalledPart, ...]],
    outcomes: tuple[HookRun, ...],
    waiting: PendingHook | None,
    now: float,
) -> Iterator[str]:
    found = [*here.get("git", ()), *everywhere.get("git", ())]
    yield from _part_warnings(found)
    yield from _lost_hooks(target, here)
    yield from _missing_programs(found)
    if not settings.enabled:
        yield "automatic captures are disabled: git config envhist.enabled true"
    if outcomes and outcomes[-1].result == "failed":
        yield f"the last capture after {outcomes[-1].event} failed: {outcomes[-1].message}"
    if waiting is not None and now - waiting.at > STALE:
        yield f"a capture after {waiting.event} started and did not finish; the next hook captures again"
    if any(part.active for part in found) and target.repository is not None:
        yield from _never_called(target, outcomes)


def _part_warnings(found: list[InstalledPart]) -> Iterator[str]:
    remarks = dict.fromkeys(part.remark for part in found if part.remark and not part.active)
    yield from remarks
    if any(part.active for part in found):
        missing = {part.event for part in found} - {part.event for part in found if part.active}
        if missing and not remarks:
            yield f"{', '.join(sorted(missing))}: another tool replaced our hook: git envlog install"


def _lost_hooks(target: InstallTarget, here: dict[str, tuple[InstalledPart, ...]]) -> Iterator[str]:
    if "git" in here or not read_record(target.state).of("git"):
        return
    yield "the installed hooks no longer exist, another tool may have replaced them: git envlog install"


def _missing_programs(found: list[InstalledPart]) -> Iterator[str]:
    """Yield a warning for each program that our hook lines call and that does not exist."""
    files = dict.fromkeys(os.path.realpath(part.place) for part in found if part.active)
    called = {program for path in files for program in _called_programs(path)}
    for program in sorted(program for program in called if not os.access(program, os.X_OK)):
        yield f"the hooks call '{program}', which no longer exists: git envlog install"


def _called_programs(path: str) -> Iterator[str]:
    import shlex  # loaded late: only `git envlog status` needs it

    content = read_state(path)
    for found in CALLED.findall(content.data if content is not None else b""):
        words = shlex.split(os.fsdecode(found))
        if words and words[0].endswith("git-envhist") and words[0].startswith("/"):
            yield words[0]


def _never_called(target: InstallTarget, outcomes: tuple[HookRun, ...]) -> Iterator[str]:
    """Yield a warning if git's reflog shows commands after which a hook should have run, and none did."""
    assert target.repository is not None
    kept = read_record(target.state).of("git")
    installed = max((one.at for one in kept.values()), default=None)
    moved = _last_commit_time(target.repository)
    if installed is None or moved is None:
        return
    last = outcomes[-1].at if outcomes else installed
    if moved > max(installed, last) + GRACE:
        yield "HEAD has moved since, but no hook was called: see 'git envlog install --dry-run'"


def _last_commit_time(repository: Repository) -> float | None:
    words = ("log", "-g", f"-{LOOKED_BACK}", "--date=unix", "--format=%gd %gs", "HEAD", "--")
    for line in repository.git.try_run(*words).out.decode("utf-8", "replace").splitlines():
        found = re.match(r"HEAD@\{(\d+)\} (.*)", line)
        if found and COMMANDS.match(found.group(2)):
            return float(found.group(1))
    return None
