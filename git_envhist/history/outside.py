"""What a restore cannot bring back, because it is not in the environment: packages of the machine, and by what command
somebody else can (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from git_envhist.history.facts import best_first, name_of
from git_envhist.model import FactChange

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:@~-]*\Z")
"""What may stand in a command that somebody will copy: a snapshot may come from anywhere."""
REMOVE = {
    "dpkg": "sudo apt-get remove {name}",
    "apk": "sudo apk del {name}",
    "rpm": "sudo dnf remove {name}",
    "brew": "brew uninstall {name}",
}
INSTALL = {
    "dpkg": "sudo apt-get install {name}={version}",
    "apk": "sudo apk add {name}={version}",
    "rpm": "sudo dnf install {name}-{version}",
    "brew": "brew install {name}",
}


def order_outside(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """The changes from what is here to the moment, what was asked for first."""
    return tuple(best_first(changes))


def outside_words(change: FactChange) -> str:
    """`system postgresql-15 (sudo apt-get remove postgresql-15)`."""
    told = f"{change.probe} {name_of(change)}"
    command = command_for(change)
    return f"{told} ({command})" if command else told


def command_for(change: FactChange) -> str:
    """What takes the machine from what is here to what was; nothing where no manager is known to do it."""
    version = change.after
    template = (REMOVE if version is None else INSTALL).get(change.by, "")
    if not WORD.match(change.key) or (version is not None and not WORD.match(version)):
        return ""
    return template.format(name=change.key, version=version)
