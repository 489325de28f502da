"""What a restore cannot bring back, because it is no file of the environment, and by what command somebody else can:
packages of the machine, services that ran (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from git_envhist.history.factkeys import name_of, place_of
from git_envhist.history.importance import by_importance
from git_envhist.model import FactChange

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:@~-]*\Z")
"""What may stand in a command that somebody will copy: a snapshot may come from anywhere."""
SERVICE = "service"
CALLED = re.compile(r"[A-Za-z0-9_./:@%+=,-]+\Z")
"""The same of the words that start a program: what stands for a secret is none of them."""
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
    return tuple(by_importance(changes))


def outside_words(change: FactChange) -> str:
    """`system postgresql-15 (sudo apt-get remove postgresql-15)`, `service server.js :8000 (node server.js)`."""
    told = f"{change.probe} {name_of(change)}"
    if change.probe == SERVICE:
        told += f" {change.after or ''}"
    command = command_for(change)
    return f"{told} ({command})" if command else told


def command_for(change: FactChange) -> str:
    """What takes the machine from what is here to what was; nothing where no manager is known to do it."""
    if change.probe == SERVICE:
        return _start(change)
    version = change.after
    template = (REMOVE if version is None else INSTALL).get(change.by, "")
    if not WORD.match(change.key) or (version is not None and not WORD.match(version)):
        return ""
    return template.format(name=change.key, version=version)


def _start(service: FactChange) -> str:
    """How a service was started, from the top of the environment."""
    place = place_of(service)
    words = [*service.by.split(" "), *([place] if place else [])]
    if service.after is None or not all(map(CALLED.match, words)) or words[0].startswith("-"):
        return ""
    return f"cd {place} && {service.by}" if place else service.by
