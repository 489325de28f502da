"""Read dpkg's package list, `/var/lib/dpkg/status`, and apt's record of automatically installed packages.

Packages of a foreign architecture are named as dpkg does: `libc6:i386`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from git_envhist.model import Fact
from git_envhist.probes.system_packages import read_list

STATUS = "var/lib/dpkg/status"
STATES = "var/lib/apt/extended_states"
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,200}\Z")
VERSION = re.compile(r"[0-9A-Za-z.+:~-]{1,200}\Z")
FIELD = re.compile(
    r"^(Package|Status|Architecture|Version|Auto-Installed):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE
)


def installed(root: str) -> Iterator[Fact]:
    """Yield the installed packages."""
    status = read_list(os.path.join(root, STATUS))
    automatic = parse_states(read_list(os.path.join(root, STATES)))
    return parse_status(status, automatic)


def parse_status(text: str, automatic: frozenset[tuple[str, str]] = frozenset()) -> Iterator[Fact]:
    """Yield the packages of a status file; `automatic` contains (name, architecture) of dependencies."""
    packages = [fields for fields in map(_package, _stanzas(text)) if fields is not None]
    native = next((architecture for name, _, architecture in packages if name == "dpkg"), "")
    for name, version, architecture in packages:
        foreign = architecture not in ("", "all", native) and native != ""
        key = f"{name}:{architecture}" if foreign else name
        # apt records packages of architecture "all" under the native architecture.
        auto = (name, architecture) in automatic or ((name, native) in automatic and architecture == "all")
        yield Fact("system", key, version, by="dpkg", auto=auto)


def parse_states(text: str) -> frozenset[tuple[str, str]]:
    """Return (name, architecture) of automatically installed packages."""
    stanzas = (dict(FIELD.findall(stanza)) for stanza in _stanzas(text))
    return frozenset(
        (fields.get("Package", ""), fields.get("Architecture", ""))
        for fields in stanzas
        if fields.get("Auto-Installed") == "1"
    )


def _package(stanza: str) -> tuple[str, str, str] | None:
    fields = dict(FIELD.findall(stanza))
    name, version = fields.get("Package", ""), fields.get("Version", "")
    if (
        not fields.get("Status", "").endswith(" installed")
        or not NAME.match(name)
        or not VERSION.match(version)
    ):
        return None
    return name, version, fields.get("Architecture", "")


def _stanzas(text: str) -> list[str]:
    return text.split("\n\n")
