"""The manual and the completions, where man and the shells of a user look: what `uv tool install` leaves out.

They stay where the installation has them; a link leads there from the user's own directories, so that the next version
is found, too. What somebody else put there is left alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.consent import name_repository
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.integrations.agents.install import leftovers, remove
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.integrations.base import InstallTarget, Integration
from git_envhist.integrations.edits import (
    carry_out,
    changed_edits,
    install_edits,
    read_record,
    uninstall_edits,
    uninstall_plan,
)
from git_envhist.integrations.git_hooks import GitHooks
from git_envhist.model.work import InstalledPart, IntegrationChange

# Installed, taken away, looked at: the verbs over all kinds of integrations.

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


PROGRAMS = ("git-envlog", "git-envdiff", "git-envrestore")
FISH_START = "git-envhist.fish"


class ShellFilesMissing(EnvhistError):
    """The installation came without the files."""

    code = "no-shell-files"

    def __init__(self) -> None:
        super().__init__(
            "this installation has neither manual nor completions",
            hint="install git-envhist from its wheel: pipx, uv tool or pip",
        )


class ShellLink(NamedTuple):
    """One file, and the place where it is to be found."""

    place: str
    target: str

    @property
    def is_there(self) -> bool:
        return os.path.realpath(self.place) == os.path.realpath(self.target)

    @property
    def is_anothers(self) -> bool:
        """Whether something stands there that is none of ours: no link, or one to another name."""
        if not os.path.lexists(self.place):
            return False
        try:
            return os.path.basename(os.readlink(self.place)) != os.path.basename(self.target)
        except OSError:
            return True


def links(environ: Mapping[str, str]) -> tuple[ShellLink, ...]:
    """Every file of ours, and where this user's programs look for its like."""
    found = tuple(link for link in _links(environ) if os.path.isfile(link.target))
    if not found:
        raise ShellFilesMissing
    return found


def _links(environ: Mapping[str, str]) -> Iterator[ShellLink]:
    home = environ.get("HOME") or os.path.expanduser("~")
    data = _base(environ, "XDG_DATA_HOME", home, ".local/share")
    config = _base(environ, "XDG_CONFIG_HOME", home, ".config")
    for program in (*PROGRAMS, "git-envhist"):
        yield ShellLink(f"{data}/man/man1/{program}.1", _file("man/man1", "docs/man/man1", f"{program}.1"))
    for program in PROGRAMS:
        yield ShellLink(
            f"{data}/bash-completion/completions/{program}",
            _file("bash-completion/completions", "completions/bash", program),
        )
        yield ShellLink(
            f"{data}/zsh/site-functions/_{program}",
            _file("zsh/site-functions", "completions/zsh", f"_{program}"),
        )
        name = f"{program}.fish"
        yield ShellLink(
            f"{config}/fish/completions/{name}", _file("fish/vendor_completions.d", "completions/fish", name)
        )
    yield ShellLink(
        f"{config}/fish/conf.d/{FISH_START}", _file("fish/vendor_conf.d", "completions/fish-conf", FISH_START)
    )


def _base(environ: Mapping[str, str], name: str, home: str, usual: str) -> str:
    configured = environ.get(name, "")
    return configured if configured.startswith("/") else os.path.join(home, usual)


def _file(shared: str, checkout: str, name: str) -> str:
    """The file of the installation, or that of the checkout that it runs from."""
    installed = os.path.join(sys.prefix, "share", shared, name)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return installed if os.path.isfile(installed) else os.path.join(here, checkout, name)


def missing(wanted: Sequence[ShellLink]) -> tuple[ShellLink, ...]:
    """Those that have to be made."""
    return tuple(link for link in wanted if not link.is_there and not link.is_anothers)


def make(wanted: Sequence[ShellLink]) -> None:
    for link in wanted:
        os.makedirs(os.path.dirname(link.place), exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(link.place)
        os.symlink(link.target, link.place)


def take_away(wanted: Sequence[ShellLink]) -> tuple[ShellLink, ...]:
    """Remove the links that lead to us; returns them."""
    ours = tuple(link for link in wanted if os.path.islink(link.place) and link.is_there)
    for link in ours:
        os.unlink(link.place)
    return ours
