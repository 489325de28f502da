"""dpkg's list of packages: `/var/lib/dpkg/status`, and what apt says came along with something else.

A package of another architecture than the machine's own is called as dpkg calls it: `libc6:i386`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from git_envhist.model import Fact

STATUS = "var/lib/dpkg/status"
STATES = "var/lib/apt/extended_states"
"""Held packages and half removed ones differ in the first two words; installed is what the last one says."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,200}\Z")
VERSION = re.compile(r"[0-9A-Za-z.+:~-]{1,200}\Z")
FIELD = re.compile(
    r"^(Package|Status|Architecture|Version|Auto-Installed):[ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE
)
MAX_SIZE = 256 << 20


def installed(root: str) -> Iterator[Fact]:
    """The packages that are installed."""
    status = _read(os.path.join(root, STATUS))
    automatic = parse_states(_read(os.path.join(root, STATES)))
    return parse_status(status, automatic)


def parse_status(text: str, automatic: frozenset[tuple[str, str]] = frozenset()) -> Iterator[Fact]:
    """What a status file says; `automatic`: (name, architecture) of those that came along."""
    found = [told for told in map(_package, _stanzas(text)) if told is not None]
    native = next((architecture for name, _, architecture in found if name == "dpkg"), "")
    for name, version, architecture in found:
        foreign = architecture not in ("", "all", native) and native != ""
        key = f"{name}:{architecture}" if foreign else name
        # apt notes a package for all architectures under the machine's own.
        auto = (name, architecture) in automatic or ((name, native) in automatic and architecture == "all")
        yield Fact("system", key, version, by="dpkg", auto=auto)


def parse_states(text: str) -> frozenset[tuple[str, str]]:
    """(name, architecture) of the packages that nobody asked apt for."""
    stanzas = (dict(FIELD.findall(stanza)) for stanza in _stanzas(text))
    return frozenset(
        (told.get("Package", ""), told.get("Architecture", ""))
        for told in stanzas
        if told.get("Auto-Installed") == "1"
    )


def _package(stanza: str) -> tuple[str, str, str] | None:
    told = dict(FIELD.findall(stanza))
    name, version = told.get("Package", ""), told.get("Version", "")
    if (
        not told.get("Status", "").endswith(" installed")
        or not NAME.match(name)
        or not VERSION.match(version)
    ):
        return None
    return name, version, told.get("Architecture", "")


def _stanzas(text: str) -> list[str]:
    return text.split("\n\n")


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_SIZE).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
