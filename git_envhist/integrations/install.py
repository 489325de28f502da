"""Install, remove and list integrations, and link the manual pages and shell completions.

`install` and `uninstall` apply the plans of git and of the agents. The second half of the module creates links to the
manual pages and completions in the user's own directories, because tools such as `uv tool install` do not put them
where man and the shells look. The links lead to the files of the installation, so that they also find those of the next
version. Existing files of other programs are never replaced.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.consent import name_repository
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.integrations.agents.install import leftovers, remove_directories
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.integrations.base import InstallTarget, Integration
from git_envhist.integrations.edits import (
    apply_edits,
    changed_edits,
    install_edits,
    read_record,
    uninstall_edits,
    uninstall_plan,
)
from git_envhist.integrations.git_hooks import GitHooks, is_below
from git_envhist.model.integrations import InstalledPart, IntegrationChange
from git_envhist.owners import make_directories, refuse_others

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
        name_repository(target.environ, target.repository.common_dir)
    return tuple(done)


def uninstall(
    target: InstallTarget, integrations: Sequence[Integration], *, dry_run: bool = False
) -> tuple[IntegrationChange, ...]:
    """Remove the integrations; a file unchanged since the installation gets its earlier content back."""
    _refuse_others(target, _directories(target, integrations))
    left = leftovers(target, [one.name for one in integrations if one.name in AGENTS])
    plans = [(one, one.plan_uninstall(target)) for one in integrations]
    _refuse_others(target, (edit.path for _, plan in plans for edit in (*plan.own, *plan.edits)))
    done = []
    for one, plan in plans:
        own = changed_edits(plan.own)
        if dry_run:
            edits = changed_edits(uninstall_plan(read_record(target.state), one.name, plan.edits))
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
            refuse_others(path)


def parts(target: InstallTarget) -> dict[str, tuple[InstalledPart, ...]]:
    """Return the installed parts of each integration, in this repository and for the user; others are left out."""
    return {one.name: found for one in all_integrations() if (found := one.parts(target))}


PROGRAMS = ("git-envlog", "git-envdiff", "git-envrestore")
FISH_START = "git-envhist.fish"


class ShellFilesMissing(EnvhistError):
    """The installation does not contain the manual pages and completions."""

    code = "no-shell-files"

    def __init__(self) -> None:
        super().__init__(
            "this installation has neither manual nor completions",
            hint="install git-envhist from its wheel: pipx, uv tool or pip",
        )


class ShellLink(NamedTuple):
    """A link to create: its path, and its target in the installation."""

    place: str
    target: str

    @property
    def is_linked(self) -> bool:
        return os.path.realpath(self.place) == os.path.realpath(self.target)

    @property
    def is_foreign(self) -> bool:
        """Whether the path exists and is not ours: no link, or a link to another name."""
        if not os.path.lexists(self.place):
            return False
        try:
            return os.path.basename(os.readlink(self.place)) != os.path.basename(self.target)
        except OSError:
            return True


def shell_links(environ: Mapping[str, str]) -> tuple[ShellLink, ...]:
    """Return the links for all manual pages and completions; raise `ShellFilesMissing` if there are none."""
    found = tuple(link for link in _shell_links(environ) if os.path.isfile(link.target))
    if not found:
        raise ShellFilesMissing
    return found


def _shell_links(environ: Mapping[str, str]) -> Iterator[ShellLink]:
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
    """Return the file of the installation or, if there is none, that of the source checkout."""
    installed = os.path.join(sys.prefix, "share", shared, name)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return installed if os.path.isfile(installed) else os.path.join(here, checkout, name)


def missing_links(wanted: Sequence[ShellLink]) -> tuple[ShellLink, ...]:
    """Return the links that do not exist yet."""
    return tuple(link for link in wanted if not link.is_linked and not link.is_foreign)


def create_links(wanted: Sequence[ShellLink]) -> None:
    for link in wanted:
        make_directories(os.path.dirname(link.place), 0o777)
        with suppress(FileNotFoundError):
            os.unlink(link.place)
        os.symlink(link.target, link.place)


def remove_links(wanted: Sequence[ShellLink]) -> tuple[ShellLink, ...]:
    """Remove the links to our files; return them."""
    ours = tuple(link for link in wanted if os.path.islink(link.place) and link.is_linked)
    for link in ours:
        refuse_others(os.path.dirname(link.place))
        os.unlink(link.place)
    return ours
