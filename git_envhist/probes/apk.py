"""Read apk's package list: `lib/apk/db/installed`, and `etc/apk/world` for requested packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from git_envhist.model import Fact
from git_envhist.probes.system_packages import read_list

LISTS = ("lib/apk/db/installed", "usr/lib/apk/db/installed")
WORLD = "etc/apk/world"
NAME = re.compile(r"[A-Za-z0-9._+-]{1,200}\Z")


def installed(root: str) -> Iterator[Fact]:
    """Yield the installed packages."""
    world = read_list(os.path.join(root, WORLD))
    for path in LISTS:
        yield from parse_installed(read_list(os.path.join(root, path)), parse_world(world))


def parse_installed(text: str, requested: frozenset[str] = frozenset()) -> Iterator[Fact]:
    """Yield the packages of a list: one paragraph per package, one letter per field."""
    for paragraph in text.split("\n\n"):
        fields = dict(
            line.split(":", 1) for line in paragraph.split("\n") if line[1:2] == ":" and line[0] in "PV"
        )
        name, version = fields.get("P", ""), fields.get("V", "")
        if NAME.match(name) and NAME.match(version):
            yield Fact("system", name, version, by="apk", auto=bool(requested) and name not in requested)


def parse_world(text: str) -> frozenset[str]:
    """Return the names of the requested packages."""
    return frozenset(re.split(r"[<>=~@]", word, maxsplit=1)[0] for word in text.split())
