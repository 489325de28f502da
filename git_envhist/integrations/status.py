"""Report the installed integrations: which hooks are active, when they last ran, and which problems exist."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping

from git_envhist.config import Settings
from git_envhist.git.repository import Repository
from git_envhist.integrations import install
from git_envhist.integrations.agents.approval import read_plugin_approvals
from git_envhist.integrations.agents.conversations import AgentConversation, newest_conversation
from git_envhist.integrations.agents.events import has_session
from git_envhist.integrations.agents.last_events import last_event, last_outcomes, last_version
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.integrations.base import NOT_NAMED, InstallTarget
from git_envhist.integrations.edits import read_record, read_state
from git_envhist.integrations.git_hooks import (
    PUSH_HOOK,
    auto_push_state,
    git_version,
    hooks_state,
    read_outcomes,
    read_pending,
)
from git_envhist.integrations.watch import is_watched
from git_envhist.lazy import replace
from git_envhist.model.integrations import (
    HookApproval,
    HookRun,
    InstalledPart,
    IntegrationStatus,
    PendingHook,
)

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
    everywhere |= _plugins(target, here, everywhere)
    outcomes, waiting = read_outcomes(hooks), read_pending(hooks)
    pushes = read_outcomes(auto_push_state(repository.state))
    warnings = [
        *_warnings(target, settings, here, everywhere, outcomes, waiting, now or time.time()),
        *_missing_approvals(here, everywhere),
        *(_silent_agents(target, {**everywhere, **here}, now or time.time()) if settings.enabled else ()),
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


WORST_FIRST = (HookApproval.MISSING, HookApproval.UNKNOWN, HookApproval.APPROVED)
PLUGIN = "plugin"
"""The event of the one part that stands for the hooks of a plugin."""
RECENT = 6 * 86_400.0
"""Older conversations are not compared: the state of their sessions is deleted after a week."""
IN_PROGRESS = 10.0
"""Seconds within which the background process may still handle the first event of a session."""
Parts = Mapping[str, tuple[InstalledPart, ...]]


def _plugins(target: InstallTarget, here: Parts, everywhere: Parts) -> dict[str, tuple[InstalledPart, ...]]:
    """Return a part for each agent whose hooks are in no settings, because its plugin contains them."""
    user = replace(target, everywhere=True)
    named = target.trusted.agents(None) - set(everywhere) - set(here)
    record = read_record(user.state)
    found = sorted(name for name in named if name in AGENTS and not record.of(name))
    return {name: (_plugin_part(target, name),) for name in found}


def _plugin_part(target: InstallTarget, name: str) -> InstalledPart:
    assert target.repository is not None
    script = os.path.join(target.own_data, "hooks", f"agent-{name}")
    if not os.path.exists(script):
        return InstalledPart(PLUGIN, False, script, f"'{script}' is missing, so the hook calls nothing")
    if not target.trusted.has_repository(target.repository.common_dir):
        return InstalledPart(PLUGIN, False, script, NOT_NAMED)
    kinds = [(at, kind) for agent, kind, _, at in last_outcomes(target.repository.state) if agent == name]
    kind = max(kinds)[1] if kinds else ""
    part = InstalledPart(PLUGIN, True, script, last_event(target.repository.state, name, kind))
    approvals = read_plugin_approvals(name, target)
    worst = next((one for one in WORST_FIRST if one in approvals.of.values()), None)
    return replace(part, active=worst is not HookApproval.MISSING, approval=worst, step=approvals.step)


def _missing_approvals(*installed: Parts) -> Iterator[str]:
    """Yield what a person must do before an agent calls our hooks."""
    parts = (part for several in installed for named in several.values() for part in named)
    yield from dict.fromkeys(part.step for part in parts if part.step)


def _silent_agents(target: InstallTarget, installed: Parts, now: float) -> Iterator[str]:
    """Yield a warning for each agent that worked here without calling a hook, although hooks of it are installed.

    A new version of an agent may not call them any more, or wait for an approval.
    """
    repository = target.repository
    assert repository is not None
    for name in AGENTS:
        if not any(part.active or part.approval is not None for part in installed.get(name, ())):
            continue
        since = _last_call(repository, name) or _installed_at(target, name)
        if since is None:
            continue
        found = newest_conversation(
            name, repository.root, target.environ, after=max(since, now - RECENT), before=now - IN_PROGRESS
        )
        if found is not None and not has_session(
            os.path.join(repository.common_state, "agents"), found.session
        ):
            yield _silence(name, found, last_version(repository.state, name))


def _silence(name: str, found: AgentConversation, known: str | None) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.at))
    version = f" {found.version}" if found.version else ""
    earlier = f"; version {known} called them" if known and known != found.version else ""
    return (
        f"{name}{version} worked here at {at} and called no hook{earlier}: look whether the hooks are approved and "
        f"enabled there, and install them again: git envlog install --agent {name}"
    )


def _last_call(repository: Repository, agent: str) -> float | None:
    return max((at for name, _, _, at in last_outcomes(repository.state) if name == agent), default=None)


def _installed_at(target: InstallTarget, agent: str) -> float | None:
    """Return when the hooks were installed in this repository; None if they are those of the user or of a plugin."""
    return max((one.at for one in read_record(target.state).of(agent).values()), default=None)


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
