"""Install, remove and list integrations, and link the manual pages and shell completions.

`install` and `uninstall` apply the plans of git and of the agents. The second half of the module creates links to the
manual pages and completions in the user's own directories, because tools such as `uv tool install` do not put them
where man and the shells look. The links lead to the files of the installation, so that they also find those of the next
version. Existing files of other programs are never replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from git_envhist.consent import approve_repository
from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.errors import UsageError
from git_envhist.integrations.agents.install import remove_directories, unneeded_directories
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.integrations.base import InstallTarget, Integration
from git_envhist.integrations.edits import (
    apply_edits,
    changed_edits,
    install_edits,
    plan_uninstall_edits,
    read_record,
    uninstall_edits,
)
from git_envhist.integrations.git_hooks import GitHooks, is_below
from git_envhist.model.integrations import InstalledPart, IntegrationChange

GIT = GitHooks()
SHORT = {"claude": "claude-code"}
"""Short names that users may type."""
ALL_AGENTS = "agents"
"""The name under which files of all agents together are reported as removed."""


def named_integrations(agents: Sequence[str]) -> tuple[Integration, ...]:
    """Return the named agents, or git if none is named."""
    agents = [SHORT.get(name, name) for name in agents]
    unknown = [name for name in agents if name not in AGENTS]
    if unknown:
        known = ", ".join(sorted(AGENTS)) or "none in this version"
        raise UsageError(f"unknown agent: '{unknown[0]}'", hint=f"known agents: {known}")
    return tuple(AGENTS[name] for name in agents) or (GIT,)


def all_integrations() -> tuple[Integration, ...]:
    """Return git and every agent."""
    return (GIT, *AGENTS.values())


def install(
    target: InstallTarget, integrations: Sequence[Integration], *, dry_run: bool = False
) -> tuple[IntegrationChange, ...]:
    """Install the integrations; return what changed, nothing if all are installed."""
    _refuse_others(target, _directories(target, integrations))
    plans = [(one, one.plan_install(target)) for one in integrations]
    _refuse_others(target, (edit.path for _, plan in plans for edit in (*plan.own, *plan.edits)))
    done = []
    for one, plan in plans:
        own = changed_edits(plan.own)
        if not dry_run:
            apply_edits(own)
        edits = changed_edits(plan.edits) if dry_run else install_edits(target.state, one.name, plan.edits)
        if not dry_run and one.name in AGENTS:
            target.trusted.add_agent(one.name, target.named)
        done.append(IntegrationChange(one.name, (*own, *edits), plan.remarks))
    if target.repository is not None and not dry_run:
        approve_repository(target.environ, target.repository.common_dir)
    return tuple(done)


def uninstall(
    target: InstallTarget, integrations: Sequence[Integration], *, dry_run: bool = False
) -> tuple[IntegrationChange, ...]:
    """Remove the integrations; a file unchanged since the installation gets its earlier content back."""
    _refuse_others(target, _directories(target, integrations))
    left = unneeded_directories(target, [one.name for one in integrations if one.name in AGENTS])
    plans = [(one, one.plan_uninstall(target)) for one in integrations]
    _refuse_others(target, (edit.path for _, plan in plans for edit in (*plan.own, *plan.edits)))
    done = []
    for one, plan in plans:
        own = changed_edits(plan.own)
        if dry_run:
            edits = changed_edits(plan_uninstall_edits(read_record(target.state), one.name, plan.edits))
        else:
            edits = uninstall_edits(target.state, one.name, plan.edits)
            apply_edits(own)
            target.trusted.remove_agent(one.name, target.named)
        done.append(IntegrationChange(one.name, (*edits, *own), plan.remarks))
    if not dry_run:
        remove_directories(left)
    return (*done, IntegrationChange(ALL_AGENTS, (), (), left)) if left else tuple(done)


def _directories(target: InstallTarget, integrations: Sequence[Integration]) -> Iterator[str]:
    """Yield our own directories in which the integrations have files."""
    yield target.state
    if any(one.name in AGENTS for one in integrations):
        yield target.own_data


def _refuse_others(target: InstallTarget, paths: Iterable[str]) -> None:
    """Refuse as root to write where another account decides; git decides about the repository itself."""
    repository = target.repository
    tops = () if repository is None else (repository.root, repository.common_dir)
    for path in paths:
        if not any(is_below(path, top) for top in tops):
            refuse_others_directory(path)


def parts(target: InstallTarget) -> dict[str, tuple[InstalledPart, ...]]:
    """Return the installed parts of each integration, in this repository and for the user; others are left out."""
    return {one.name: found for one in all_integrations() if (found := one.parts(target))}
