"""Links to man pages and completions, where shells and man find them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.directories_of_others import make_directories, refuse_others_directory
from git_envhist.errors import EnvhistError

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
        refuse_others_directory(os.path.dirname(link.place))
        os.unlink(link.place)
    return ours
