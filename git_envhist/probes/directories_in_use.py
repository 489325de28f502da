"""List database servers that were using a directory while it was captured.

The capture detects them by file locks and processes (`worktree/databases`) and records the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from git_envhist.model import EnvPath, Fact

PROBE = "database"
SERVER_IN_USE = re.compile(r"([A-Za-z]{1,20}) is using it\b")


def facts_of(signs: Iterable[tuple[bytes, str]]) -> Iterator[Fact]:
    """Yield each server once per directory."""
    found = {(path, match[1]) for path, reason in signs if (match := SERVER_IN_USE.match(reason)) is not None}
    for path, server in sorted(found):
        place = path.decode("utf-8", "surrogateescape")
        yield Fact(PROBE, f"{place}/{server}" if place else server, "at work", EnvPath(path))
