"""Database servers that were at work on their directories while these were captured: the capture says so itself.

It knows by the locks that such servers keep, and by processes, and never by names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from git_envhist.model import EnvPath, Fact

PROBE = "database"
SIGN = re.compile(r"([A-Za-z]{1,20}) is using it\b")


def facts_of(signs: Iterable[tuple[bytes, str]]) -> Iterator[Fact]:
    """The servers, each once for a directory."""
    found = {(path, sign[1]) for path, told in signs if (sign := SIGN.match(told)) is not None}
    for path, server in sorted(found):
        place = path.decode("utf-8", "surrogateescape")
        yield Fact(PROBE, f"{place}/{server}" if place else server, "at work", EnvPath(path))
