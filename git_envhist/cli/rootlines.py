"""The lines of a plan about additional roots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.cli.terminal import escape


def root_lines(roots: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Name each additional root in which something changes, and its directory."""
    for name, place in roots:
        yield f"  changes the additional root '{escape(name)}': {escape(place)}"
