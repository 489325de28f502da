"""How another process of ours is started: by this interpreter, with this very package.

A server or a browser keeps to the version that it was started as, and the environment that it is about may hold modules
of any name: it is nowhere that we look for ours.
"""

from __future__ import annotations

import os
import sys

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from git_envhist.cli.entry import {0}; {0}()"


def own_command(program: str) -> list[str]:
    """The words before those of a command line: `envlog`, `envdiff`, `envrestore`, `envhist`, `upkeep`."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-P", "-c", START.format(program), package]
