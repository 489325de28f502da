"""Print for people or programs; no text that is printed can command a terminal."""

from __future__ import annotations

import json
import sys

from git_envhist.spelling import for_people


def say(line: str) -> None:
    """Print a line of the answer."""
    print(for_people(line))


def complain(line: str) -> None:
    """Print a line about what went wrong."""
    print(for_people(line), file=sys.stderr)


def print_json(value: object) -> None:
    """Print an answer for programs: ASCII alone."""
    print(json.dumps(value))
