"""The result of the last event of each kind that an agent's hooks sent, and its version, for `git envlog status`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from git_envhist.platform import open_file_only

LAST, VERSION = "last-", "version-"


def last_outcome(state: str, agent: str, kind: str) -> str | None:
    """Return the result and time of the last event of a kind in a working tree, or None."""
    try:
        path = _path(os.path.join(state, "agents"), agent, kind)
        with open(path, encoding="utf-8", errors="replace", opener=open_file_only) as file:
            return file.read().strip() or None
    except OSError:
        return None


def last_event(state: str, agent: str, kind: str) -> str:
    """Return when the last event of a kind arrived in a working tree, and its result, in words."""
    result, _, at = (last_outcome(state, agent, kind) or "").rpartition(" (")
    return f"last event {at.removesuffix(')')}: {result}" if result else "no event yet"


def last_outcomes(state: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield (agent, kind, result, time) of the last event of each kind in a working tree."""
    directory = os.path.join(state, "agents")
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            agent, _, kind = name.removeprefix(LAST).rpartition("-")
            outcome = last_outcome(state, agent, kind) if name.startswith(LAST) and agent else None
            if outcome is not None:
                yield (
                    agent,
                    kind,
                    outcome.rpartition(" (")[0],
                    os.stat(os.path.join(directory, name)).st_mtime,
                )


def last_version(state: str, agent: str) -> str | None:
    """Return the version of an agent that last called a hook in a working tree, if it named one."""
    try:
        with open(_version_path(os.path.join(state, "agents"), agent), opener=open_file_only) as file:
            return file.read(64).strip() or None
    except (OSError, ValueError):
        return None


def write_version(directory: str, agent: str, version: str) -> None:
    """Write the version of an agent that called a hook."""
    with open(_version_path(directory, agent), "w", encoding="utf-8") as file:
        file.write(version + "\n")


def _version_path(directory: str, agent: str) -> str:
    return os.path.join(directory, f"{VERSION}{agent}")


def _path(directory: str, agent: str, kind: str) -> str:
    return os.path.join(directory, f"{LAST}{agent}-{kind}")
