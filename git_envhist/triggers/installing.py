"""Installed, taken away, looked at: the verbs over all kinds of integrations."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.capturing.attendance import name_repository
from git_envhist.errors import UsageError
from git_envhist.model.causing import InstalledPart, IntegrationChange
from git_envhist.triggers.agents import AGENTS
from git_envhist.triggers.agents.leftovers import leftovers, remove
from git_envhist.triggers.edits import carry_out, changed_edits
from git_envhist.triggers.git.integration import GitHooks
from git_envhist.triggers.integration import InstallTarget, Integration
from git_envhist.triggers.kept import install_edits, read_record, uninstall_edits, uninstall_plan

GIT = GitHooks()
SHORT = {"claude": "claude-code"}
"""How people call them."""
LEFT = "agents"
"""What all agents together have left."""


def chosen(agents: Sequence[str]) -> tuple[Integration, ...]:
    """The agents that are named; git where none is."""
    agents = [SHORT.get(name, name) for name in agents]
    unknown = [name for name in agents if name not in AGENTS]
    if unknown:
        known = ", ".join(sorted(AGENTS)) or "none in this version"
        raise UsageError(f"no agent is known by this name: '{unknown[0]}'", hint=f"known are: {known}")
    return tuple(AGENTS[name] for name in agents) or (GIT,)


def every() -> tuple[Integration, ...]:
    """git, and every agent."""
    return (GIT, *AGENTS.values())


def install(
    place: InstallTarget, integrations: Sequence[Integration], *, dry_run: bool = False
) -> tuple[IntegrationChange, ...]:
    """Put them in place; nothing changes where all of it is."""
    plans = [(one, one.plan_install(place)) for one in integrations]
    done = []
    for one, plan in plans:
        own = changed_edits(plan.own)
        if not dry_run:
            carry_out(own)
        edits = changed_edits(plan.edits) if dry_run else install_edits(place.state, one.name, plan.edits)
        if not dry_run and one.name in AGENTS:
            place.trusted.add_agent(one.name, place.named)
        done.append(IntegrationChange(one.name, (*own, *edits), plan.remarks))
    if place.repository is not None and not dry_run:
        name_repository(place.environ, place.repository.common_dir)
    return tuple(done)


def uninstall(
    place: InstallTarget, integrations: Sequence[Integration], *, dry_run: bool = False
) -> tuple[IntegrationChange, ...]:
    """Take them away; what nobody has changed since is what it was before."""
    left = leftovers(place, [one.name for one in integrations if one.name in AGENTS])
    plans = [(one, one.plan_uninstall(place)) for one in integrations]
    done = []
    for one, plan in plans:
        own = changed_edits(plan.own)
        if dry_run:
            edits = changed_edits(uninstall_plan(read_record(place.state), one.name, plan.edits))
        else:
            edits = uninstall_edits(place.state, one.name, plan.edits)
            carry_out(own)
            place.trusted.remove_agent(one.name, place.named)
        done.append(IntegrationChange(one.name, (*edits, *own), plan.remarks))
    if not dry_run:
        remove(left)
    return (*done, IntegrationChange(LEFT, (), (), left)) if left else tuple(done)


def parts(place: InstallTarget) -> dict[str, tuple[InstalledPart, ...]]:
    """What of each is there, in this repository and for the user; nothing of those that are nowhere."""
    return {one.name: found for one in every() if (found := one.parts(place))}
